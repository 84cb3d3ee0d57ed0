"""One look at an installation, for all causes of an answer: its clock, its nodes, and fields of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from coordinator.fleet.nodes import Node, Nodes
from coordinator.jobs import record
from coordinator.jobs.ready import ReadyKind, ready_kinds
from coordinator.lanes.client import LaneClient
from coordinator.store.client import Store
from coordinator.store.times import instant
from coordinator.store.values import ActNote, Json

Reasons = Callable[[Store], list[str]]


class Snapshot:
    """`needed`: labels that jobs need; each function says which nodes lost the label, and why."""

    def __init__(self, lanes: LaneClient, needed: Mapping[str, Reasons] = MappingProxyType({})) -> None:
        self.lanes, self.needed = lanes, needed
        self.store = lanes.store
        self.clock = self.store.clock()

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes that no sweep has removed."""
        return Nodes(self.store).all()

    @cached_property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    @cached_property
    def ready(self) -> list[ReadyKind]:
        """How many jobs of each task and class are ready."""
        return ready_kinds(self.store)

    def fields(self, ids: Sequence[str], *names: str) -> list[list[str]]:
        return record.fields_of_many(self.store, ids, *names)

    def score(self, name: str, member: str) -> float | None:
        score: float | None = self.store.read("ZSCORE", self.store.key(name), member)
        return score

    def by_wall(self, own: float | None) -> float | None:
        """Translate ms of the installation's clock into ms of the wall clock."""
        return None if own is None else own - self.clock.now + self.clock.wall

    def due(self, wall: float | None) -> dict[str, Json]:
        """The facts of an instant (ms) that is to come, or has come."""
        if wall is None:
            return {"due": None, "left": None}
        return {"due": at(wall), "left": (wall - self.clock.wall) / 1000}


def by(act: ActNote | None) -> dict[str, Json]:
    """The facts of an operator's act."""
    return {"by": act["by"], "since": at(act["at"]), "why": act["why"]} if act else {}


def at(ms: float) -> str:
    """An instant as a fact."""
    return instant(ms).isoformat().replace("+00:00", "Z")
