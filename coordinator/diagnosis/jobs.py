"""The causes of one job, by its state, and those of a lane. A cause names the jobs to which it leads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kombu.utils.json import loads

from coordinator.diagnosis.cause import Cause
from coordinator.diagnosis.codes import MOST_NAMES, REJECTED, cause, names
from coordinator.diagnosis.fit import fit, slots
from coordinator.diagnosis.snapshot import Snapshot, at, by
from coordinator.errors import UnknownJob
from coordinator.grabs import reader as grabs
from coordinator.jobs import record
from coordinator.jobs.instances import GrabRecord, is_grab, lane_of, names_in
from coordinator.jobs.record import Job
from coordinator.jobs.spec import ErrorRecord as Error
from coordinator.lanes import view
from coordinator.lanes.client import MAX_LANE_LIMIT
from coordinator.lanes.view import Lane
from coordinator.sorters.sorter import Sorters
from coordinator.store.reading import FieldReader
from coordinator.store.times import to_ms
from coordinator.store.values import Json

_LONGEST = 200  # characters of an error; the job itself has all


def of_lane(look: Snapshot, key: str) -> list[Cause]:
    """The causes of a lane: who holds it, who stands in it, what an operator did to it; and the grabs of the key."""
    [lane] = view.lanes_at(look.store, [key], 20)
    thing, causes = f"lane {key}", _marks(lane)
    holders = [holder.job_id for holder in lane.holders]
    if holders:
        causes.insert(0, cause("lane.held", thing, things(holders), holders=names(holders), length=lane.length))
    elif lane.jobs:
        first = lane.jobs[:1]
        causes.append(cause("lane.line", thing, things(first), behind=[*first], length=lane.length))
    grabbed = [one for one in grabs.all_of(look.store, key, 20) if one.state == "running"]
    causes += [_grab(f"lane {lane_of(key, one.instance)}", one) for one in grabbed]
    return causes or [cause("lane.free", thing)]


def of_job(look: Snapshot, job: Job) -> list[Cause]:
    """The causes of a job, the nearest first."""
    damage = [cause("damaged", f"job {job.id}", fields=[*job.damaged])] if job.damaged else []
    if not {"state", "keys"}.isdisjoint(job.damaged):
        return damage
    of_state = {
        "waiting": _waiting, "ready": _ready, "running": _running, "scheduled": _scheduled, "collected": _collected,
        "retrying": _retrying, "parked": _parked, "held": _held, "rolling_back": _rolling_back,
    }.get(job.state, _over)  # fmt: skip
    return of_state(look, job) + damage


def things(ids: Sequence[str]) -> list[str]:
    return [f"job {job_id}" for job_id in ids[: MOST_NAMES + 1]]


def error_text(error: Error | None) -> str:
    if not error:
        return ""
    author = f" (by {error['by']})" if error.get("by") else ""
    message = str(error.get("message"))
    kind = f"{error['type']}: " if error.get("type") else ""
    return f"{kind}{message[:_LONGEST]}{'…' * (len(message) > _LONGEST)}{author}"


# In line


def _waiting(look: Snapshot, job: Job) -> list[Cause]:
    causes = [one for key in job.keys for one in _in_lane(look, job, key)]
    return causes or [cause("waiting.next", f"job {job.id}")]


def _in_lane(look: Snapshot, job: Job, key: str) -> list[Cause]:
    [lane] = view.lanes_at(look.store, [key], MAX_LANE_LIMIT + 1)
    ahead = lane.jobs.index(job.id) if job.id in lane.jobs else _rank(look, job, lane)
    code, before = _ahead(look, job, lane, ahead)
    facts: dict[str, Json] = {"key": key, "ahead": ahead if ahead > len(before) else None, "limit": lane.limit}
    facts |= {"behind": names(before), "greater": lane.limit + 1, "length": lane.length}
    behind = [cause(code, f"job {job.id}", things(before), **facts)] if before else []
    return behind + _marks(lane)


def _rank(look: Snapshot, job: Job, lane: Lane) -> int:
    """The number of jobs before one that stands far behind."""
    rank = look.store.read("ZRANK", look.store.key("line", lane.key), job.id)
    return lane.length if rank is None else int(rank) - _marked(lane)


def _marked(lane: Lane) -> int:
    """The number of operators' marks in front of the line."""
    return lane.paused + (lane.limited is not None)


def _ahead(look: Snapshot, job: Job, lane: Lane, ahead: int) -> tuple[str, list[str]]:
    """The rule that makes the job wait in the lane, and the jobs that it waits for (rules/admit.lua)."""
    before, limit = list(lane.jobs[:ahead]), max(1, lane.limit)
    if ahead < limit and not job.exclusive:
        fields = look.fields(before, "exclusive")
        return "waiting.exclusive", [other for other, (exclusive,) in zip(before, fields, strict=True) if exclusive]
    pinned = look.store.read("ZCOUNT", look.store.key("line", lane.key), "-inf", "-inf") - _marked(lane)
    first = before[: max(limit, pinned)]  # jobs that were started stay there when the limit is lowered
    return "waiting.lane" if limit == 1 else "waiting.alone" if job.exclusive else "waiting.limit", first


def _marks(lane: Lane) -> list[Cause]:
    thing = f"lane {lane.key}"
    paused = [cause("waiting.paused", thing, key=lane.key, **by(lane.pause))] if lane.paused else []
    closed = [cause("waiting.closed", thing, key=lane.key, **by(lane.limited))] if lane.limit == 0 else []
    return paused + closed


# Ready for a node


def _ready(look: Snapshot, job: Job, what: str = "is ready") -> list[Cause]:
    thing, [[kind]] = f"job {job.id}", look.fields([job.id], "class")
    kinds = kind.split("\n")
    found = fit(look.living, kinds, job.task)
    facts: dict[str, Json] = {"what": what, "nodes": found.nodes, "full": names([slots(node) for node in found.full])}
    lacks = [f"{about['count']} {REJECTED[code]} {about['lacks']}".rstrip() for code, about in found.rejected]
    facts |= {"rejected": names(lacks), "node": found.free[0].name if found.free else None, "task": job.task}
    facts |= {"failure": found.free[0].failure or None} if found.free else {}
    labels: dict[str, Json] = {"labels": ",".join(kinds[2:])}
    head = cause(found.code, thing, **facts)
    lost = [(label, look.needed[label](look.store)) for label in kinds[2:] if label in look.needed]
    return [
        head,
        *(cause(code, thing, **about, **labels) for code, about in found.rejected if not found.free),
        *(cause("rejected.lost", f"label {label}", label=label, says=names(says)) for label, says in lost if says),
    ]


# At work


def _running(look: Snapshot, job: Job, code: str = "running.job") -> list[Cause]:
    thing = f"job {job.id}"
    [[runner, stop, spec]] = look.fields([job.id], "runner", "stop", "spec")
    facts = _at_work(look, job, "leases" if job.task else "locks")
    if not job.task:
        if is_grab(job.key):
            return [_grab(thing, grabs.look(look.store, *names_in(job.key)))]
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
    if job.node not in [node.name for node in look.living]:
        causes.insert(0, cause("running.orphan", thing, node=job.node, lease=facts["lease"]))
    return causes


def _at_work(look: Snapshot, job: Job, leases: str) -> dict[str, Json]:
    lease, since = look.score(leases, job.id), job.started
    return {
        "id": job.id,
        "key": job.key,
        "for_": (look.clock.now - to_ms(since)) / 1000 if since else 0,
        "fence": None if job.fence is None else str(job.fence),
        "lease": None if lease is None else max(0, (lease - look.clock.uptime) / 1000),
    }


def _stopped(error: Error | None) -> dict[str, Json]:
    return {"by": error.get("by"), "why": error.get("message")} if error else {}


def _grab(thing: str, grab: GrabRecord) -> Cause:
    winner = grab.winner
    facts: dict[str, Json] = {"key": grab.key, "instance": grab.instance, "state": grab.state}
    facts |= {"winner": winner.identifier if winner else "nobody", "place": winner.place if winner else "no node yet"}
    facts |= {"since": at(to_ms(grab.started)) if grab.started else None, "attempt": grab.attempt}
    return cause("running.grab", thing, **facts)


# Later


def _scheduled(look: Snapshot, job: Job) -> list[Cause]:
    return [cause("later.scheduled", f"job {job.id}", **_due(look, job))]


def _retrying(look: Snapshot, job: Job) -> list[Cause]:
    facts = {**_due(look, job), "attempt": job.attempt, "error": error_text(job.error), "id": job.id}
    return [cause("later.retry", f"job {job.id}", **facts)]


def _due(look: Snapshot, job: Job) -> dict[str, Json]:
    own = look.score("due", job.id)
    return look.due(look.score("starts", job.id) if own is None else look.by_wall(own))


def _collected(look: Snapshot, job: Job) -> list[Cause]:
    thing, [[place]] = f"job {job.id}", look.fields([job.id], "sorter")
    name, _, sort_key = place.partition("\n")
    nobody = [] if look.living else [cause("waiting.fleet", thing, what="waits for a node to put it in line")]
    if look.store.read("ZSCORE", look.store.key("batch", name), f"{sort_key}\0{job.id}") is not None:
        return [cause("later.flush", thing, sorter=name), *nobody]
    due = Sorters(look.store).look(name).due
    when = look.due(look.by_wall(None if due is None else to_ms(due)))
    return [cause("later.sorter", thing, sorter=name, **when), *nobody]


def _parked(look: Snapshot, job: Job, what: str = "is parked") -> list[Cause]:
    [values] = look.fields([job.id], "handles", "till")
    reader = FieldReader(dict(zip(("handles", "till"), values, strict=True)))
    ids: list[str] = reader.get("handles", lambda text: [task_id for task_id in loads(text)["ids"] if task_id], [])
    following = list(islice(_open(look, ids), 1))
    facts: dict[str, Json] = {"what": what, "count": len(ids), "ids": names(ids)}
    head = cause("parked.results", f"job {job.id}", things(following), **facts)
    return [head, *([] if following else _parked_on_tasks(look, job, ids, reader.get("till", float, 0.0), what))]


def _parked_on_tasks(look: Snapshot, job: Job, ids: Sequence[str], till: float, what: str) -> list[Cause]:
    """The nodes that began the sub-tasks, as far as Redis noted them, and the limit that ends the wait anyway."""
    notes: Mapping[bytes, bytes] = look.store.read("HGETALL", look.store.key("begun", job.id))
    lives = {task_id.decode(): note.decode().split(" ", 2)[2:] for task_id, note in notes.items()}
    begun = {task_id: life[0] for task_id, life in lives.items() if life and task_id in ids}
    thing = f"job {job.id}"
    causes = [cause("parked.begun", thing, what=what, task=task, node=node) for task, node in sorted(begun.items())[:5]]
    if len(begun) < len(ids):
        causes.append(cause("parked.unbegun", thing, what=what, count=len(ids) - len(begun)))
    limit, end = ("time_limit", till) if till else ("max_lifetime", look.score("expiry", job.id))
    return [*causes, cause("parked.until", thing, what=what, limit=limit, **look.due(look.by_wall(end)))]


def _open(look: Snapshot, ids: Sequence[str]) -> Iterator[str]:
    """Yield the jobs among these that are not over. Only the result backend knows about ordinary tasks."""
    for job_id in ids:
        try:
            job = look.lanes.job(job_id)
            if not job.over:
                yield job.id
        except UnknownJob:
            continue


def _held(look: Snapshot, job: Job) -> list[Cause]:
    return [cause("held", f"job {job.id}", id=job.id, error=error_text(job.error))]


def _rolling_back(look: Snapshot, job: Job) -> list[Cause]:
    if look.fields([job.id], "state") == [["parked"]]:
        return _parked(look, job, "is rolled back; its rollback is parked")
    at_work = look.score("leases", job.id)
    return _running(look, job, "running.rollback") if at_work else _ready(look, job, "is to be rolled back")


def _over(look: Snapshot, job: Job) -> list[Cause]:
    again = job.id if job.state not in ("succeeded", "expired") else None
    return [cause("over", f"job {job.id}", state=job.state, error=error_text(job.error), again=again)]
