"""A snapshot of an installation, from which all causes of one answer are found: its clock, nodes, and jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs import record
from coordinator.core.jobs.ready import ReadyKind, ready_kinds
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.bundle import Bundle
from coordinator.core.store.client import Store
from coordinator.core.store.times import ClockReading, instant
from coordinator.core.store.values import ActNote, Json

Reasons = Callable[[Store], list[str]]


class Snapshot:
    """What one answer reads of an installation; clock, nodes and ready jobs are read once and kept.

    `needed`: label that jobs need -> function that returns sentences: which nodes lost the label, and why.
    """

    def __init__(self, lanes: LaneClient, needed: Mapping[str, Reasons] = MappingProxyType({})) -> None:
        self.lanes, self.needed = lanes, needed
        self.store = lanes.store

    def begin(self, bundle: Bundle) -> None:
        """Have a bundle read what is to be kept: the clock, the nodes and the ready jobs, if they were not read yet."""
        kept = vars(self)  # readings beside each other must not meet in a cached property, which has a lock
        reads: dict[str, Callable[[Store], object]] = {
            "clock": Store.clock, "nodes": lambda store: Nodes(store).all(), "ready": ready_kinds,
        }  # fmt: skip
        for name in reads.keys() - kept.keys():
            bundle.add(lambda store, name=name: kept.update({name: reads[name](store)}))  # type: ignore[misc]

    def read(self) -> Snapshot:
        """Read what is to be kept, in two round trips. Returns this snapshot."""
        bundle = Bundle(self.store)
        self.begin(bundle)
        bundle.run()
        return self

    def within(self, store: Store) -> Snapshot:
        """Return this snapshot, which was read, with the store of a bundle: for one of its readings."""
        own = Snapshot(LaneClient(store), self.needed)
        vars(own).update({name: vars(self)[name] for name in ("clock", "nodes", "ready")})
        return own

    @cached_property
    def clock(self) -> ClockReading:
        return self.store.clock()

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes that no sweep has removed, also those that are not alive."""
        return Nodes(self.store).all()

    @cached_property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    @cached_property
    def ready(self) -> list[ReadyKind]:
        """The number of ready jobs for each task and routing class."""
        return ready_kinds(self.store)

    def fields(self, ids: Sequence[str], *names: str) -> list[list[str]]:
        return record.fields_of_many(self.store, ids, *names)

    def score(self, name: str, member: str) -> float | None:
        score: float | None = self.store.read("ZSCORE", self.store.key(name), member)
        return score

    def by_wall(self, own: float | None) -> float | None:
        """Translate `own`, ms of the installation's clock, into ms of the wall clock. None stays None."""
        return None if own is None else own - self.clock.now + self.clock.wall

    def due(self, wall: float | None) -> dict[str, Json]:
        """Return the facts of an instant (`wall`: ms of the wall clock): `due` as ISO text, and `left`, the seconds
        until then, negative if it has passed. None: both are None.
        """
        if wall is None:
            return {"due": None, "left": None}
        return {"due": at(wall), "left": (wall - self.clock.wall) / 1000}


def by(act: ActNote | None) -> dict[str, Json]:
    """Return the facts of an operator's act: by whom, since when and why; {} for None."""
    return {"by": act["by"], "since": at(act["at"]), "why": act["why"]} if act else {}


def at(ms: float) -> str:
    """Write an instant (ms since the epoch) as ISO text, as facts have it."""
    return instant(ms).isoformat().replace("+00:00", "Z")
