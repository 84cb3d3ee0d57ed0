"""Why a job is where it is: a chain of causes, each a sentence, from the job itself down to a root.

A root is a job that runs, an instant at which something is due, an operator's decision, or a lack in the fleet. A job
that waits leads to the job in front of its lane. Jobs meet in the same order in all lanes, so the chain ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kombu.utils.json import loads

from coordinator.diagnosis.status import out_of_replica_sets
from coordinator.documents.replica_set import label_of
from coordinator.errors import UnknownJob
from coordinator.fleet.nodes import Node, Nodes
from coordinator.jobs import record
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import Job
from coordinator.jobs.spec import Cause
from coordinator.lanes.lane import Lane
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.sorter import Sorters
from coordinator.store.times import instant, moment
from coordinator.store.values import Act

Found = tuple[list[str], str | None]  # sentences, and the job that is their cause


def causes_of(look: Look, job_id: str) -> list[str]:
    """Raises UnknownJob where the job itself is unknown. A cause that is gone since ends the chain."""
    said: list[str] = []
    seen: set[str] = set()
    following: str | None = job_id
    while following is not None and following not in seen:
        seen.add(following)
        try:
            sentences, following = look.cause(look.lanes.job(following))
        except UnknownJob:
            if not said:
                raise
            break
        said += [sentence for sentence in sentences if sentence not in said]
    return said


class Look:
    """The questions of one chain, at one moment."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.clock = self.store.clock()

    def cause(self, job: Job) -> Found:
        if job.over:
            error = f": {_error(job)}" if job.error else ""
            return [f"job {job.id} is over, {job.state}{error}"], None
        causes = {
            "waiting": self._waiting,
            "ready": self._ready,
            "scheduled": self._scheduled,
            "collected": self._collected,
            "retrying": self._retrying,
            "parked": self._parked,
            "held": self._held,
            "rolling_back": self._rolling_back,
        }
        return causes.get(job.state, self._running)(job)

    def _waiting(self, job: Job) -> Found:
        lanes = [self.lanes.lane(key, 1) for key in job.keys]
        said, before = [], None
        for lane in lanes:
            if lane.jobs and lane.jobs[0] != job.id:
                before = before or lane.jobs[0]
                several = f", of which {lane.limit} may run at once" if lane.limit > 1 else ""
                said.append(f"job {job.id} waits behind job {lane.jobs[0]} in lane {shown_lane(lane.key)!r}{several}")
            if lane.paused:
                said.append(_pause(lane))
            if lane.limit == 0:
                said.append(_closed(lane))
        return said or [f"job {job.id} is in front of its lanes and starts next"], before

    def _ready(self, job: Job, what: str = "is ready") -> Found:
        (kind,) = self._fields(job, "class")
        kinds = kind.split("\n")
        lacking = _lacking(Nodes(self.store).living(), kinds, job.task)
        documents = [label.removeprefix(label_of("")) for label in kinds[2:] if label.startswith(label_of(""))]
        return [f"job {job.id} {what}, and {lacking}", *out_of_replica_sets(self.store, documents)], None

    def _running(self, job: Job, what: str = "runs") -> Found:
        since = f"{self._since(job)}, attempt {job.attempt}"
        if not job.task:
            return [f"job {job.id} is a lock in plain code, held for {since}"], None
        (stop,) = self._fields(job, "stop")
        said = f"job {job.id} {what} on node {job.node} for {since}"
        if stop:
            said += f"; it is being stopped, to end as {stop} ({_error(job)})"
        if not self._alive(job):
            said += "; that node is not alive: another takes the job when its lease ends"
        return [said], None

    def _alive(self, job: Job) -> bool:
        return Nodes(self.store).is_alive(job.node or "")

    def _scheduled(self, job: Job) -> Found:
        return [f"job {job.id} is scheduled for later: {self._due(job)}"], None

    def _collected(self, job: Job) -> Found:
        (told,) = self._fields(job, "sorter")
        name, _, sort_key = told.partition("\n")
        member = f"{sort_key}\0{job.id}"
        if self.store.read("ZSCORE", self.store.key("batch", name), member) is not None:
            said = f"is among the orders that the sorter {name!r} is putting in line"
        else:
            due = Sorters(self.store).look(name).due
            when = self._at(None if due is None else self._by_wall(due.timestamp() * 1000))
            said = f"is held by the sorter {name!r} until no more come: {when}"
        return [f"job {job.id} {said}" + ("" if Nodes(self.store).living() else "; no node is alive to do it")], None

    def _retrying(self, job: Job) -> Found:
        return [f"job {job.id} is tried again at {self._due(job)}: attempt {job.attempt} ended in {_error(job)}"], None

    def _parked(self, job: Job, what: str = "is parked") -> Found:
        handles, till = self._fields(job, "handles", "till")
        ids = [one for one in loads(handles or "{}").get("ids", ()) if one]
        said = f"job {job.id} {what} until all of its {len(ids)} sub-results have ended: {', '.join(ids)}"
        following = next(self._open(ids), None)
        return [said, *([] if following else self._parked_on_tasks(job, ids, till))], following

    def _parked_on_tasks(self, job: Job, ids: Sequence[str], till: str) -> list[str]:
        """Say which nodes began its sub-tasks, as far as that was noted; and the limit that ends the wait anyway."""
        notes = self.store.read("HGETALL", self.store.key("begun", job.id))
        begun = {one.decode(): note.decode().partition(" ")[2] for one, note in notes.items() if one.decode() in ids}
        said = [f"sub-task {one} was begun on node {node}" for one, node in sorted(begun.items())[:5]]
        if len(begun) < len(ids):
            said.append(f"nobody has noted that the other {len(ids) - len(begun)} began, or they have ended")
        limit, end = "time_limit", float(till or 0) or None
        if end is None:
            limit, end = "max_lifetime", self.store.read("ZSCORE", self.store.key("expiry"), job.id)
        return [
            *said,
            f"its {limit} ends the wait at the latest: {self._at(None if end is None else self._by_wall(end))}",
        ]

    def _open(self, ids: Sequence[str]) -> Iterator[str]:
        """The jobs among these that are not over. Only the result backend knows about ordinary tasks."""
        for one in ids:
            try:
                if not self.lanes.job(one).over:
                    yield one
            except UnknownJob:
                continue

    def _held(self, job: Job) -> Found:
        return [f"job {job.id} is held for an operator, who retries or cancels it: {_error(job)}"], None

    def _rolling_back(self, job: Job) -> Found:
        if self._fields(job, "state") == ["parked"]:
            return self._parked(job, "is rolled back; its rollback is parked")
        at_work = self.store.read("ZSCORE", self.store.key("leases"), job.id)
        return self._running(job, "is rolled back") if at_work else self._ready(job, "is to be rolled back")

    def _fields(self, job: Job, *names: str) -> list[str]:
        return record.fields(self.store, job.id, *names)

    def _since(self, job: Job) -> str:
        return (
            f"{max(0.0, self.clock.now / 1000 - job.started.timestamp()):.0f} s" if job.started else "an unknown time"
        )

    def _due(self, job: Job) -> str:
        own = self.store.read("ZSCORE", self.store.key("due"), job.id)
        named = self.store.read("ZSCORE", self.store.key("starts"), job.id) if own is None else None
        return self._at(named if own is None else self._by_wall(own))

    def _by_wall(self, own: float) -> float:
        """An instant by the installation's clock, by the one on the wall."""
        return own - self.clock.now + self.clock.wall

    def _at(self, at: float | None) -> str:
        if at is None:
            return "any moment"
        return f"{moment(instant(at))} (in {max(0.0, at - self.clock.wall) / 1000:.0f} s)"


def _pause(lane: Lane) -> str:
    by, at, why = _told(lane.pause)
    return f"lane {shown_lane(lane.key)!r} is paused by {by} since {at}: {why}"


def _closed(lane: Lane) -> str:
    by, at, why = _told(lane.limited)
    return f"lane {shown_lane(lane.key)!r} has the limit 0, set by {by} at {at}: {why}"


def _told(act: Act | None) -> tuple[str, str, str]:
    """An act as text: by whom, when and why."""
    return (act["by"], moment(instant(act["at"])), act["why"]) if act else ("?", "?", "?")


def _lacking(living: list[Node], kind: list[str], task: str) -> str:
    """The reason why no runner has taken a ready job of this class (app, queue, labels) and task."""
    if not living:
        return "no node is alive"
    app, queue, *labels = kind
    wanted: list[tuple[str, Callable[[Node], bool]]] = [
        *([(f"is of the app {app!r}", lambda node: node.app == app)] if app else []),
        (f"serves the queue {queue!r}", lambda node: queue in node.queues),
        *((f"has the label {label!r}", partial(_labelled, label)) for label in labels),
        (f"knows the task {task!r}", lambda node: task in node.tasks),
        ("takes new jobs, since all of them drain", lambda node: not node.draining),
    ]
    fitting = living
    for number, (does, test) in enumerate(wanted):
        left = [node for node in fitting if test(node)]
        if not left:
            also = " and ".join(said for said, _ in wanted[:number])
            return f"no living node {does}" if not also else f"no living node that {also} {does}"
        fitting = left
    if free := [node.name for node in fitting if node.running + node.ordinary < node.capacity]:
        return f"node {free[0]} has room for it"
    busy = ", ".join(f"{node.name} ({node.running + node.ordinary} of {node.capacity})" for node in fitting)
    return f"every slot of the nodes that may run it is taken: {busy}"


def _labelled(label: str, node: Node) -> bool:
    return label in node.labels


def _error(job: Job) -> str:
    error: Cause = job.error or {}
    by = f" (by {error['by']})" if error.get("by") else ""
    return f"{error.get('type')}: {error.get('message')}{by}"
