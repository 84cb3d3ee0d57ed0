"""Explains why a job is where it is: a chain of causes, each a sentence, from the job itself down to a root.

A root is a job that runs, an instant at which something is due, an operator's decision, or a lack in the fleet. A job
that waits leads to each job that is in its way. Jobs meet in the same order in all lanes, so the chain ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from types import MappingProxyType

from kombu.utils.json import loads

from coordinator.diagnosis.fleet import Reasons
from coordinator.errors import UnknownJob
from coordinator.fleet.nodes import Node, Nodes
from coordinator.jobs import record
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import Job
from coordinator.jobs.spec import Cause
from coordinator.lanes.client import MAX_LIMIT, Lanes
from coordinator.lanes.view import Lane
from coordinator.sorters.sorter import Sorters
from coordinator.store.times import instant, moment, span_text
from coordinator.store.values import Act

Explanation = tuple[list[str], Sequence[str]]  # sentences, and the jobs that are their causes

MOST = 20  # jobs that one answer follows


def causes_of(look: Look, job_id: str) -> list[str]:
    """The chain of causes of a job. Raises UnknownJob where the job is unknown; leaves out causes that are gone."""
    chain, following = look.cause(look.lanes.job(job_id))
    queue, seen = list(following), {job_id}
    while queue and len(seen) <= MOST:
        other = queue.pop(0)
        if other in seen:
            continue
        seen.add(other)
        with suppress(UnknownJob):
            sentences, following = look.cause(look.lanes.job(other))
            chain += [sentence for sentence in sentences if sentence not in chain]
            queue += following
    if left := len(set(queue) - seen):
        chain.append(f"{left} more jobs are in the way")
    return chain


class Look:
    """Reads the causes of one chain, at one moment. `needed`: as for `status_of`."""

    def __init__(self, lanes: Lanes, needed: Mapping[str, Reasons] = MappingProxyType({})) -> None:
        self.lanes, self.needed = lanes, needed
        self.store = lanes.store
        self.clock = self.store.clock()

    def cause(self, job: Job) -> Explanation:
        if job.over:
            error = f": {_error(job)}" if job.error else ""
            return [f"job {job.id} is over, {job.state}{error}"], ()
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
        damage = [f"the record of job {job.id} is damaged: {', '.join(job.damaged)}"] if job.damaged else []
        if not {"state", "keys"}.isdisjoint(job.damaged):
            return damage, ()
        sentences, following = causes.get(job.state, self._running)(job)
        return sentences + damage, following

    def _waiting(self, job: Job) -> Explanation:
        sentences, following = [], []
        for key in job.keys:
            lane = self.lanes.lane(key, MAX_LIMIT + 1)
            ahead, how = self._ahead(job, lane)
            following += ahead
            where = f"in lane {shown_lane(key)!r}{how}"
            sentences += [f"job {job.id} waits behind job {other} {where}" for other in ahead[:MOST]]
            if lane.paused:
                sentences.append(_pause(lane))
            if lane.limit == 0:
                sentences.append(_closed(lane))
        return sentences or [f"job {job.id} is in front of its lanes and starts next"], following

    def _ahead(self, job: Job, lane: Lane) -> tuple[list[str], str]:
        """The jobs that this job waits for in the lane, and the rule that makes it wait (rules/admit.lua)."""
        place = lane.jobs.index(job.id) if job.id in lane.jobs else len(lane.jobs)
        before, limit = lane.jobs[:place], max(1, lane.limit)
        earlier = list(zip(before, self._fields_of(before, "state", "weight"), strict=True))
        at_work = sum(state != "waiting" for _, (state, _) in earlier)
        if place < limit and not job.exclusive:
            return [other for other, (_, weight) in earlier if weight], ", which runs alone (exclusive)"
        first = list(before[: max(limit, at_work)])  # jobs that were started stay there when the limit is lowered
        if limit == 1:
            return first, ""
        return first, f", of which {limit} may run at once" if not job.exclusive else ", to run alone (exclusive)"

    def _ready(self, job: Job, what: str = "is ready") -> Explanation:
        (kind,) = self._fields(job, "class")
        kinds = kind.split("\n")
        lacking = _lacking(Nodes(self.store).living(), kinds, job.task)
        lost = [reason for label in kinds[2:] if label in self.needed for reason in self.needed[label](self.store)]
        return [f"job {job.id} {what}, and {lacking}", *lost], ()

    def _running(self, job: Job, what: str = "runs") -> Explanation:
        since = f"{self._since(job)}, attempt {job.attempt}"
        if not job.task:
            return [f"job {job.id} is a lock in plain code, held for {since}"], ()
        (stop,) = self._fields(job, "stop")
        sentence = f"job {job.id} {what} on node {job.node} for {since}"
        if stop:
            sentence += f"; it is being stopped, to end as {stop} ({_error(job)})"
        if not self._alive(job):
            sentence += "; that node is not alive: another takes the job when its lease ends"
        return [sentence], ()

    def _alive(self, job: Job) -> bool:
        return Nodes(self.store).is_alive(job.node or "")

    def _scheduled(self, job: Job) -> Explanation:
        return [f"job {job.id} is scheduled for later: {self._due(job)}"], ()

    def _collected(self, job: Job) -> Explanation:
        (place,) = self._fields(job, "sorter")
        name, _, sort_key = place.partition("\n")
        member = f"{sort_key}\0{job.id}"
        if self.store.read("ZSCORE", self.store.key("batch", name), member) is not None:
            what = f"is among the orders that the sorter {name!r} is putting in line"
        else:
            due = Sorters(self.store).look(name).due
            when = self._at(None if due is None else self._by_wall(due.timestamp() * 1000))
            what = f"is held by the sorter {name!r} until no more come: {when}"
        return [f"job {job.id} {what}" + ("" if Nodes(self.store).living() else "; no node is alive to do it")], ()

    def _retrying(self, job: Job) -> Explanation:
        return [f"job {job.id} is tried again at {self._due(job)}: attempt {job.attempt} ended in {_error(job)}"], ()

    def _parked(self, job: Job, what: str = "is parked") -> Explanation:
        reader = record.FieldReader(dict(zip(("handles", "till"), self._fields(job, "handles", "till"), strict=True)))
        ids: list[str] = reader.get("handles", lambda text: [task_id for task_id in loads(text)["ids"] if task_id], [])
        sentence = f"job {job.id} {what} until all of its {len(ids)} sub-results have ended: {', '.join(ids)}"
        following = list(islice(self._open(ids), 1))
        return [
            sentence,
            *([] if following else self._parked_on_tasks(job, ids, reader.get("till", float, 0.0))),
        ], following

    def _parked_on_tasks(self, job: Job, ids: Sequence[str], till: float) -> list[str]:
        """The nodes that began the sub-tasks, as far as Redis noted them, and the limit that ends the wait anyway."""
        notes = self.store.read("HGETALL", self.store.key("begun", job.id))
        lives = {task_id.decode(): note.decode().split(" ", 2)[2:] for task_id, note in notes.items()}
        begun = {task_id: life[0] for task_id, life in lives.items() if life and task_id in ids}
        sentences = [f"sub-task {task_id} was begun on node {node}" for task_id, node in sorted(begun.items())[:5]]
        if len(begun) < len(ids):
            sentences.append(
                f"the other {len(ids) - len(begun)} have not begun, or have ended; a message that a lost node had "
                f"fetched comes again after the broker's visibility_timeout (RabbitMQ: at once)"
            )
        limit, end = "time_limit", till or None
        if end is None:
            limit, end = "max_lifetime", self.store.read("ZSCORE", self.store.key("expiry"), job.id)
        return [
            *sentences,
            f"its {limit} ends the wait at the latest: {self._at(None if end is None else self._by_wall(end))}",
        ]

    def _open(self, ids: Sequence[str]) -> Iterator[str]:
        """Yield the jobs among these that are not over. Only the result backend knows about ordinary tasks."""
        for job_id in ids:
            try:
                job = self.lanes.job(job_id)
                if not job.over:
                    yield job.id
            except UnknownJob:
                continue

    def _held(self, job: Job) -> Explanation:
        return [f"job {job.id} is held for an operator, who retries or cancels it: {_error(job)}"], ()

    def _rolling_back(self, job: Job) -> Explanation:
        if self._fields(job, "state") == ["parked"]:
            return self._parked(job, "is rolled back; its rollback is parked")
        at_work = self.store.read("ZSCORE", self.store.key("leases"), job.id)
        return self._running(job, "is rolled back") if at_work else self._ready(job, "is to be rolled back")

    def _fields(self, job: Job, *names: str) -> list[str]:
        return self._fields_of([job.id], *names)[0]

    def _fields_of(self, ids: Sequence[str], *names: str) -> list[list[str]]:
        return record.fields_of_many(self.store, ids, *names)

    def _since(self, job: Job) -> str:
        return span_text(self.clock.now / 1000 - job.started.timestamp()) if job.started else "an unknown time"

    def _due(self, job: Job) -> str:
        own = self.store.read("ZSCORE", self.store.key("due"), job.id)
        named = self.store.read("ZSCORE", self.store.key("starts"), job.id) if own is None else None
        return self._at(named if own is None else self._by_wall(own))

    def _by_wall(self, own: float) -> float:
        """Translate ms of the installation's clock into ms of the wall clock."""
        return own - self.clock.now + self.clock.wall

    def _at(self, at: float | None) -> str:
        if at is None:
            return "any moment"
        return f"{moment(instant(at))} (in {span_text((at - self.clock.wall) / 1000)})"


def _pause(lane: Lane) -> str:
    by, at, why = _act_parts(lane.pause)
    return f"lane {shown_lane(lane.key)!r} is paused by {by} since {at}: {why}"


def _closed(lane: Lane) -> str:
    by, at, why = _act_parts(lane.limited)
    return f"lane {shown_lane(lane.key)!r} has the limit 0, set by {by} at {at}: {why}"


def _act_parts(act: Act | None) -> tuple[str, str, str]:
    """An act as texts: by whom, when and why."""
    return (act["by"], moment(instant(act["at"])), act["why"]) if act else ("?", "?", "?")


def _lacking(living: list[Node], kind: list[str], task: str) -> str:
    """The reason why no runner has taken a ready job of this class (app, queue, labels) and task."""
    if not living:
        return "no node is alive"
    app, queue, *labels = kind if len(kind) > 1 else [*kind, ""]
    conditions: list[tuple[str, Callable[[Node], bool]]] = [
        *([(f"is of the app {app!r}", lambda node: node.app == app)] if app else []),
        (f"serves the queue {queue!r}", lambda node: queue in node.queues),
        *((f"has the label {label!r}", partial(_labelled, label)) for label in labels),
        (f"knows the task {task!r}", lambda node: task in node.tasks),
        ("takes new jobs, since all of them drain", lambda node: not node.draining),
    ]
    fitting = living
    for number, (does, test) in enumerate(conditions):
        left = [node for node in fitting if test(node)]
        if not left:
            also = " and ".join(condition for condition, _ in conditions[:number])
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
