"""Plans a drain: what runs on the node, how long that may take, and what the fleet loses with the node; and an undrain.

How long a job may take is what its task usually takes over the fleet, less what it has run already. A time limit, and
`drain_timeout`, after which the node hands its jobs over, bound that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs.ready import ReadyKind, ready_kinds
from coordinator.core.jobs.record import fields_of_many, read_many
from coordinator.core.jobs.validation import name as checked
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, text_in
from coordinator.core.store.times import instant, span_text
from coordinator.ops.search.fit import fit

_SHOWN = 20  # jobs, and things that no other node has, that a sentence names


@dataclass(frozen=True, slots=True)
class AtWork:
    """A job that runs on the node. Seconds: `ran` until now, `usual`: what its task takes, `limit`: its time limit;
    None: unknown, or there is none.
    """

    id: str
    task: str
    ran: float
    usual: float | None
    limit: float | None

    @property
    def left(self) -> float | None:
        """For how many more seconds the job is likely to run; None if nothing says so."""
        if self.usual is None or self.ran > self.usual:
            return None
        return self.usual - self.ran

    def __str__(self) -> str:
        usual = self.usual is not None and (span_text(self.usual) if self.usual >= 1 else "under a second")
        late = self.usual is not None and self.ran > self.usual
        parts = [f"job {self.id} ({self.task}) has run for {span_text(self.ran)}"]
        parts += (
            [f"longer than its task usually takes ({usual})" if late else f"its task usually takes {usual}"]
            if usual
            else []
        )
        parts += [f"its time limit is {span_text(self.limit)}"] if self.limit else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What a drain, or an undrain, of a node would do, as read at `as_of`.

    `changes`: False where the node is drained already, or was not drained. `alive`: False where no node of this name
    lives. `at_work`: the jobs that run there; `ordinary`: how many tasks run there that are no jobs. `only`: what no
    other node has that takes jobs (`app shop`, `queue print`, `label printer`, `task shop.scan`); of the last node of
    an app the app alone. `ready`: how many ready jobs no other node can take. `drain_timeout`: seconds after which the
    node hands its jobs over to others.
    """

    act: str
    node: str
    as_of: datetime
    changes: bool
    alive: bool
    at_work: tuple[AtWork, ...]
    ordinary: int
    only: tuple[str, ...]
    ready: int
    drain_timeout: float

    @property
    def expected(self) -> float | None:
        """After how many seconds the node is likely to be empty; None if nothing says so."""
        left = [job.left for job in self.at_work]
        known = [seconds for seconds in left if seconds is not None]
        return None if len(known) < len(left) else min(max(known, default=0.0), self.drain_timeout)

    @property
    def lines(self) -> list[str]:
        """The plan as sentences for people."""
        if not self.changes:
            return [f"{self.node} {'is drained already' if self.act == 'drain' else 'is not drained'}: nothing changes"]
        if not self.alive:
            rest = "gets no jobs when it comes" if self.act == "drain" else "gets jobs when it comes"
            return [f"no node {self.node} is alive; one of that name {rest}"]
        return [*self._kept(), *(self._leaving() if self.act == "drain" else ())]

    def _leaving(self) -> Iterator[str]:
        """Say how long it may take until the node is empty, and what runs there."""
        if self.ordinary:
            yield f"{_counted(self.ordinary, 'ordinary task')} there: a drain is of jobs, and leaves those alone"
        if not self.at_work:
            yield "no job runs there: it is empty at once"
            return
        jobs = _counted(len(self.at_work), "job")
        known, verb = self.expected is not None, "runs" if len(self.at_work) == 1 else "run"
        soon = f"likely for {span_text(self.expected or 0)} more" if known else "nobody can tell for how long"
        yield f"{jobs} {verb} there, {soon}; what still runs after {span_text(self.drain_timeout)} is handed over"
        yield from map(str, self.at_work[:_SHOWN])
        if len(self.at_work) > _SHOWN:
            yield f"and {len(self.at_work) - _SHOWN} more"

    def _kept(self) -> Iterator[str]:
        """Say what only this node has."""
        if self.only[:1] and self.only[0].startswith("app "):
            rest = "none of its jobs starts" if self.act == "drain" else "its jobs start again"
            yield f"it is the only node of {self.only[0]} that takes jobs: {rest}"
        elif self.only:
            more = f" and {len(self.only) - _SHOWN} more" if len(self.only) > _SHOWN else ""
            yield f"no other node that takes jobs has {', '.join(self.only[:_SHOWN])}{more}"
        else:
            yield "other nodes have all of its queues, labels and tasks"
        if self.ready:
            waits = ("waits", "wait")[self.ready != 1]
            until = "until it comes back, or another comes" if self.act == "drain" else "for it alone"
            yield f"{_counted(self.ready, 'ready job')} {waits} {until}"


def of_drain(store: Store, name: str, drain: bool) -> DrainPlan:
    """Plan `Coordinator.drain`, or `undrain` if `drain` is False. Raises InvalidJob for a name that no node has."""
    checked("node", name)
    nodes = Nodes(store)
    drained, known = nodes.drained(), nodes.living()
    node = next((one for one in known if one.name == name), None)
    others = [one for one in known if one.name != name and not one.draining]
    kinds = ready_kinds(store) if node else []
    return DrainPlan(
        act="drain" if drain else "undrain",
        node=name,
        as_of=instant(store.clock().wall),
        changes=(name in drained) != drain,
        alive=node is not None,
        at_work=tuple(_at_work(store, name)) if node else (),
        ordinary=node.ordinary if node else 0,
        only=tuple(_only(node, others)) if node else (),
        ready=sum(kind.count for kind in kinds if node and _served([node], kind) and not _served(others, kind)),
        drain_timeout=store.settings.drain_timeout,
    )


def _at_work(store: Store, name: str) -> list[AtWork]:
    """Read the jobs that run on the node, the one that has run longest first."""
    claims = store.read("HVALS", store.key("work", name))
    ids = [job_id for claim in claims if (job_id := text_in(claim.partition(b" ")[2].partition(b" ")[2]))]
    jobs, now = [job for job in read_many(store, ids) if job.state in ("running", "rolling_back")], store.clock().wall
    limits = fields_of_many(store, [job.id for job in jobs], "limits")
    usual = store.read("HMGET", store.key("usual"), *(job.task for job in jobs)) if jobs else ()
    found = [
        AtWork(
            job.id,
            job.task,
            max(0.0, now / 1000 - job.started.timestamp()) if job.started else 0.0,
            _seconds(text_in(ms)),
            _seconds(*text.split()[2:3]),
        )
        for job, [text], ms in zip(jobs, limits, usual, strict=True)
    ]
    return sorted(found, key=lambda one: -one.ran)


def _seconds(ms: str = "") -> float | None:
    """Convert ms in Redis; None for 0, and for what is missing or damaged."""
    number = FieldReader({"ms": ms}).get("ms", float, 0.0)
    return number / 1000 if number > 0 else None


def _only(node: Node, others: Sequence[Node]) -> Iterator[str]:
    """Yield what the node has and none of the others, as DrainPlan.only."""
    same = [other for other in others if other.app == node.app]
    if not same:
        yield f"app {node.app}"
        return
    kinds: list[tuple[str, Iterable[str], set[str]]] = [
        ("queue", node.queues, {queue for other in same for queue in other.queues}),
        ("label", node.labels, {label for other in same for label in other.labels}),
        ("task", node.tasks, {task for other in same for task in other.tasks}),
    ]
    for kind, own, theirs in kinds:
        yield from (f"{kind} {one}" for one in own if one not in theirs)


def _served(nodes: Sequence[Node], ready: ReadyKind) -> bool:
    """True if one of these nodes, or a draining one among them, has what the jobs need."""
    return not fit(nodes, ready.kind.split("\n"), ready.task).unserved


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"
