"""Finds why a job waits that is to run after others (`after`): the jobs and events that it waits for, those that hold
it, and those with which it failed.
"""

from __future__ import annotations

from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.core.store.reading import number_in, text_in
from coordinator.core.store.values import Json
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import MOST_NAMES, cause, names
from coordinator.ops.diagnosis.snapshot import Snapshot, at

_WITHOUT_SUCCESS = TERMINAL - {"succeeded"}


def blocked(job: Job) -> list[Cause]:
    """Return why a blocked job waits. Its causes lead to their own."""
    waits = [wait for wait in job.after if wait.open]
    jobs = list(dict.fromkeys(wait.job_id for wait in waits if wait.job_id))
    events = list(dict.fromkeys(wait.event for wait in waits if wait.event))
    facts: dict[str, Json] = {"open": len(jobs) + len(events), "behind": names(jobs), "events": names(events)}
    facts["count"] = len({wait.job_id or f"\1{wait.event}" for wait in job.after})
    of = [f"job {job_id}" for job_id in jobs[: MOST_NAMES + 1]] + [f"event {event}" for event in events[:MOST_NAMES]]
    return [cause("blocked", f"job {job.id}", of, **facts)]


def held_by(snapshot: Snapshot, job: Job) -> list[Cause]:
    """Return which causes hold a job that never began; [] if none does."""
    if job.taken or not job.after:
        return []
    known = _ended_badly(snapshot, job, open_=True)
    gone = [] if known else [wait.job_id for wait in job.after if wait.open and wait.job_id]
    failed = [*known, *gone]
    of = [f"job {job_id}" for job_id in known]
    facts: dict[str, Json] = {"failed": names(failed), "id": known[0] if known else job.id}
    return [cause("held.cause", f"job {job.id}", of, **facts)]


def failed_with(snapshot: Snapshot, job: Job) -> list[str]:
    """Return the causes with which a job failed, as things."""
    if job.state != "failed" or (job.error or {}).get("type") != "CauseFailed":
        return []
    return [f"job {job_id}" for job_id in _ended_badly(snapshot, job)]


def parked_for(snapshot: Snapshot, job: Job, event: str) -> list[Cause]:
    due = snapshot.due(snapshot.by_wall(snapshot.score("timeouts", job.id)))
    return [cause("parked.event", f"job {job.id}", [f"event {event}"], event=event, **due)]


def of_event(snapshot: Snapshot, name: str) -> list[Cause]:
    """Return whether an event is set for which jobs wait. A set one tells those that wait for it in portions."""
    store = snapshot.store
    fields = [("HMGET", store.key("event", name), "at", "by"), ("ZCARD", store.key("dependants", f"\1{name}"))]
    (since, by), count = store.read_many(fields)
    thing, facts = f"event {name}", {"name": name, "count": count or None}
    if since is None:
        return [cause("event.unset", thing, **facts)]
    return [cause("event.set", thing, at=at(number_in(text_in(since)) or 0), by=text_in(by), **facts)]


def _ended_badly(snapshot: Snapshot, job: Job, open_: bool = False) -> list[str]:
    """Return the first 20 of a job's causes that have ended without success. `open_`: of those that it waits for."""
    ids = list(dict.fromkeys(wait.job_id for wait in job.after if wait.job_id and (wait.open or not open_)))
    states = zip(ids, snapshot.fields(ids, "state"), strict=True)
    return [job_id for job_id, (state,) in states if state in _WITHOUT_SUCCESS][:MOST_NAMES]
