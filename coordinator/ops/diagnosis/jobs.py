"""Finds the causes of a job, by the job's state, and the causes of a lane. A cause names the jobs that explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kombu.utils.json import loads

from coordinator.core.grabs import reader as grabs
from coordinator.core.jobs import record
from coordinator.core.jobs.instances import GrabRecord, is_grab, lane_of, names_in
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.spec import ErrorRecord as Error
from coordinator.core.lanes import view
from coordinator.core.lanes.view import Lane
from coordinator.core.store.reading import FieldReader
from coordinator.core.store.times import milliseconds, to_ms
from coordinator.core.store.values import Json
from coordinator.errors import UnknownJob
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import MOST_NAMES, REJECTED, cause, names
from coordinator.ops.diagnosis.dependants import blocked, failed_with, held_by, parked_for
from coordinator.ops.diagnosis.quotas import lacking
from coordinator.ops.diagnosis.snapshot import Snapshot, at, by
from coordinator.ops.search.fit import fit, slots
from coordinator.sorters.sorter import Sorters

_LINE = 100  # how many jobs of a line are read
_ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "expired": "expired",
    "rolled_back": "failed and was rolled back",
    "double_fault": "failed, and so did its rollback",
}
_LONGEST = 200  # characters of an error's message in a cause; the job's record has the whole message


def of_lane(snapshot: Snapshot, key: str) -> list[Cause]:
    """Return the causes of a lane: its holder, or else the first job in line; its pause; and the grabs of the lane's
    key that run.
    """
    [lane] = view.lanes_at(snapshot.store, [key], 20)
    thing, causes = f"lane {key}", _marks(lane)
    holders = [holder.job_id for holder in lane.holders]
    if holders:
        behind = max(0, lane.length - len(holders)) or None
        causes.insert(0, cause("lane.held", thing, things(holders), holders=names(holders), length=behind))
    elif lane.jobs:
        first = lane.jobs[:1]
        more = lane.length - 1 or None
        causes.append(cause("lane.line", thing, things(first), key=key, behind=[*first], more=more))
    if lane.collector and lane.collector not in lane.jobs:
        apart = [lane.collector]
        causes.append(cause("lane.collects", thing, things(apart), collector=names(apart)))
    running = [grab for grab in grabs.all_of(snapshot.store, key, 20) if grab.state == "running"]
    causes += [_grab(f"lane {lane_of(key, grab.instance)}", grab) for grab in running]
    return causes or [cause("lane.free", thing)]


def of_job(snapshot: Snapshot, job: Job) -> list[Cause]:
    """Return the causes of a job, the nearest first, and at the end the damage of its record, if any."""
    damage = [cause("damaged", f"job {job.id}", fields=[*job.damaged])] if job.damaged else []
    if not {"state", "keys"}.isdisjoint(job.damaged):
        return damage
    of_state = {
        "waiting": _waiting, "ready": _ready, "running": _running, "scheduled": _scheduled, "collected": _collected,
        "collecting": _collecting,
        "blocked": _blocked, "retrying": _retrying, "parked": _parked, "held": _held, "rolling_back": _rolling_back,
    }.get(job.state, _over)  # fmt: skip
    return of_state(snapshot, job) + damage


def things(ids: Sequence[str]) -> list[str]:
    return [f"job {job_id}" for job_id in ids[: MOST_NAMES + 1]]


def error_text(error: Error | None) -> str:
    if not error:
        return ""
    author = f" (by {error['by']})" if error.get("by") else ""
    message = str(error.get("message"))
    kind = f"{error['type']}: " if error.get("type") else ""
    return f"{kind}{message[:_LONGEST]}{'…' * (len(message) > _LONGEST)}{author}"


# Causes of a job in line


def _waiting(snapshot: Snapshot, job: Job) -> list[Cause]:
    causes = [] if job.taken else [one for key in job.keys for one in _in_lane(snapshot, job, key)]
    causes += lacking(snapshot, job)
    return causes or [cause("waiting.next", f"job {job.id}")]


def _in_lane(snapshot: Snapshot, job: Job, key: str) -> list[Cause]:
    [lane] = view.lanes_at(snapshot.store, [key], _LINE)
    ahead = lane.jobs.index(job.id) if job.id in lane.jobs else _rank(snapshot, job, lane)
    before = list(lane.jobs[: min(ahead, max(1, len(lane.holders)))])
    facts: dict[str, Json] = {"key": key, "ahead": ahead if ahead > len(before) else None}
    facts |= {"behind": names(before), "length": lane.length, "place": ahead + 1, "task": job.task}
    behind = [cause("waiting.lane", f"job {job.id}", things(before), **facts)] if before else []
    return behind + _marks(lane)


def _rank(snapshot: Snapshot, job: Job, lane: Lane) -> int:
    """Return the number of jobs ahead of a job that stands so far behind that `lane.jobs` lacks it."""
    rank = snapshot.store.read("ZRANK", snapshot.store.key("line", lane.key), job.id)
    return lane.length if rank is None else int(rank) - lane.paused


def _marks(lane: Lane) -> list[Cause]:
    if not lane.paused:
        return []
    until = at(to_ms(lane.until)) if lane.until else None
    return [cause("waiting.paused", f"lane {lane.key}", key=lane.key, **by(lane.pause), until=until)]


# Causes of a job that is ready for a node


def _ready(snapshot: Snapshot, job: Job, what: str = "waits", alone: str = "waits for one") -> list[Cause]:
    thing, [[kind]] = f"job {job.id}", snapshot.fields([job.id], "class")
    kinds = kind.split("\n")
    fitness = fit(snapshot.living, kinds, job.task)
    facts: dict[str, Json] = {
        "what": what,
        "alone": alone,
        "nodes": fitness.nodes,
        "full": names([slots(node) for node in fitness.full]),
    }
    lacks = [f"{about['count']} {REJECTED[code]} {about['lacks']}".rstrip() for code, about in fitness.rejected]
    facts |= {"rejected": names(lacks), "node": fitness.free[0].name if fitness.free else None, "task": job.task}
    facts |= {"failure": fitness.free[0].failure or None} if fitness.free else {}
    labels: dict[str, Json] = {"labels": ",".join(kinds[2:])}
    head = cause(fitness.code, thing, **facts)
    lost = [(label, snapshot.needed[label](snapshot.store)) for label in kinds[2:] if label in snapshot.needed]
    return [
        head,
        *(cause(code, thing, **about, **labels) for code, about in fitness.rejected if not fitness.free),
        *(cause("rejected.lost", f"label {label}", label=label, says=names(says)) for label, says in lost if says),
    ]


# Causes of a job at work


def _running(snapshot: Snapshot, job: Job, code: str = "running.job") -> list[Cause]:
    thing = f"job {job.id}"
    [[runner, stop, spec]] = snapshot.fields([job.id], "runner", "stop", "spec")
    facts = _at_work(snapshot, job, "leases" if job.task else "locks")
    if not job.task:
        if is_grab(job.key):
            return [_grab(thing, grabs.read(snapshot.store, *names_in(job.key)))]
        return [cause("running.lock", thing, **facts)]
    steps = len(record.spec_of(FieldReader({"spec": spec})).get("steps", ()))
    facts |= {"node": job.node, "pid": runner.partition(".")[0], "attempt": job.attempt}
    if steps > 1:
        facts |= {"step": job.step + 1, "steps": steps}
    if job.progress and job.progress[1]:
        done, total = job.progress
        facts |= {"done": done, "total": total, "percent": round(100 * done / total)}
    causes = [cause(code, thing, **facts)]
    if stop:
        causes.insert(0, cause("running.stopping", thing, ends=stop, **_stopped(job.error)))
    if job.node not in [node.name for node in snapshot.living]:
        causes.insert(0, cause("running.orphan", thing, node=job.node, lease=facts["lease"]))
    return causes


def _at_work(snapshot: Snapshot, job: Job, leases: str) -> dict[str, Json]:
    lease, since = snapshot.score(leases, job.id), job.started
    return {
        "id": job.id,
        "key": job.key,
        "task": job.task,
        "for_": (snapshot.clock.now - to_ms(since)) / 1000 if since else 0,
        "fence": None if job.fence is None else str(job.fence),
        "lease": None if lease is None else max(0, (lease - snapshot.clock.uptime) / 1000),
    }


def _stopped(error: Error | None) -> dict[str, Json]:
    return {"by": error.get("by"), "why": error.get("message")} if error else {}


def _grab(thing: str, grab: GrabRecord) -> Cause:
    winner = grab.winner
    facts: dict[str, Json] = {"key": grab.key, "instance": grab.instance, "state": grab.state}
    facts |= {"winner": winner.identifier if winner else "nobody", "place": winner.place if winner else "no node yet"}
    facts |= {"since": at(to_ms(grab.started)) if grab.started else None, "attempt": grab.attempt}
    return cause("running.grab", thing, **facts)


# Causes of a job that is due later, is parked, held, rolled back or over


def _scheduled(snapshot: Snapshot, job: Job) -> list[Cause]:
    return [cause("later.scheduled", f"job {job.id}", task=job.task, **_due(snapshot, job))]


def _blocked(_: Snapshot, job: Job) -> list[Cause]:
    return blocked(job)


def _retrying(snapshot: Snapshot, job: Job) -> list[Cause]:
    facts = {**_due(snapshot, job), "attempt": job.attempt, "error": error_text(job.error), "id": job.id}
    return [cause("later.retry", f"job {job.id}", task=job.task, key=job.key, **facts)]


def _due(snapshot: Snapshot, job: Job) -> dict[str, Json]:
    own = snapshot.score("due", job.id)
    return snapshot.due(snapshot.score("starts", job.id) if own is None else snapshot.by_wall(own))


def _collected(snapshot: Snapshot, job: Job) -> list[Cause]:
    thing, [[place]] = f"job {job.id}", snapshot.fields([job.id], "sorter")
    name, _, sort_key = place.partition("\n")
    no_node = [] if snapshot.living else [cause("waiting.fleet", thing, alone="waits for one to put it in line")]
    if snapshot.store.read("ZSCORE", snapshot.store.key("batch", name), f"{sort_key}\0{job.id}") is not None:
        return [cause("later.flush", thing, sorter=name), *no_node]
    due = Sorters(snapshot.store).look(name).due
    when = snapshot.due(snapshot.by_wall(None if due is None else to_ms(due)))
    return [cause("later.sorter", thing, sorter=name, **when), *no_node]


def _collecting(snapshot: Snapshot, job: Job) -> list[Cause]:
    thing, since, facts = f"job {job.id}", job.submitted, _due(snapshot, job)
    if job.collects:
        facts |= {"how": job.collects.how, "calls": job.collects.calls, "id": job.id}
        if since and job.collects.max_wait is not None:
            facts["latest"] = at(to_ms(since) + milliseconds(job.collects.max_wait))
    no_node = [] if snapshot.living else [cause("waiting.fleet", thing, alone="waits for one to put it in line")]
    return [cause("later.collects", thing, since=at(to_ms(since)) if since else None, **facts), *no_node]


def _parked(snapshot: Snapshot, job: Job, what: str = "is parked") -> list[Cause]:
    [[event, *values]] = snapshot.fields([job.id], "event", "handles", "till")
    if event:
        return parked_for(snapshot, job, event)
    reader = FieldReader(dict(zip(("handles", "till"), values, strict=True)))
    ids: list[str] = reader.get("handles", lambda text: [task_id for task_id in loads(text)["ids"] if task_id], [])
    following = list(islice(_open(snapshot, ids), 1))
    facts: dict[str, Json] = {"what": what, "task": job.task, "count": len(ids), "ids": names(ids)}
    head = cause("parked.results", f"job {job.id}", things(following), **facts)
    return [head, *([] if following else _parked_on_tasks(snapshot, job, ids, reader.get("till", float, 0.0), what))]


def _parked_on_tasks(snapshot: Snapshot, job: Job, ids: Sequence[str], till: float, what: str) -> list[Cause]:
    """Return which nodes have begun the sub-tasks of a parked job, as far as Redis has noted that, and the time limit
    that ends the wait at the latest. `ids`: of the sub-tasks; `till`: end of the job's time limit in ms, 0: none.
    """
    notes: Mapping[bytes, bytes] = snapshot.store.read("HGETALL", snapshot.store.key("begun", job.id))
    lives = {task_id.decode(): note.decode().split(" ", 2)[2:] for task_id, note in notes.items()}
    begun = {task_id: life[0] for task_id, life in lives.items() if life and task_id in ids}
    thing = f"job {job.id}"
    causes = [
        cause("parked.begun", thing, what=what, task=job.task, child=child, node=node)
        for child, node in sorted(begun.items())[:5]
    ]
    if len(begun) < len(ids):
        causes.append(cause("parked.unbegun", thing, what=what, task=job.task, count=len(ids) - len(begun)))
    limit, end = ("time_limit", till) if till else ("max_lifetime", snapshot.score("expiry", job.id))
    return [
        *causes,
        cause("parked.until", thing, what=what, task=job.task, limit=limit, **snapshot.due(snapshot.by_wall(end))),
    ]


def _open(snapshot: Snapshot, ids: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the jobs among `ids` that are not over. Ordinary tasks, which only the result backend knows, are
    left out.
    """
    for job_id in ids:
        try:
            job = snapshot.lanes.job(job_id)
            if not job.over:
                yield job.id
        except UnknownJob:
            continue


def _held(snapshot: Snapshot, job: Job) -> list[Cause]:
    if causes := held_by(snapshot, job):
        return causes
    since = next((event.at for event in reversed(job.course) if event.what == "held"), None)
    facts: dict[str, Json] = {"id": job.id, "task": job.task, "key": job.key, "error": error_text(job.error)}
    facts |= {"for_": (snapshot.clock.now - to_ms(since)) / 1000} if since else {}
    return [cause("held", f"job {job.id}", **facts)]


def _rolling_back(snapshot: Snapshot, job: Job) -> list[Cause]:
    if snapshot.fields([job.id], "state") == [["parked"]]:
        return _parked(snapshot, job, "is rolled back; its rollback is parked")
    at_work = snapshot.score("leases", job.id)
    return (
        _running(snapshot, job, "running.rollback")
        if at_work
        else _ready(snapshot, job, "is to be rolled back, and waits", "waits for one to roll it back")
    )


def _over(snapshot: Snapshot, job: Job) -> list[Cause]:
    again = job.id if job.state not in ("succeeded", "expired") else None
    of = failed_with(snapshot, job)
    facts: dict[str, Json] = {"state": job.state, "ended": _ENDED[job.state], "task": job.task, "again": again}
    return [cause("over", f"job {job.id}", of, **facts, error=error_text(job.error))]
