"""Writes jobs, lanes, nodes and operators' acts as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from coordinator.core.fleet.nodes import Node
from coordinator.core.jobs.history import Event
from coordinator.core.jobs.options import Use
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.lanes.view import Lane
from coordinator.core.store.times import instant, moment, span_text
from coordinator.core.store.values import ActNote
from coordinator.ops.cli.format import as_pairs, as_table
from coordinator.ops.search.groups import Groups

_WAITS = 20  # causes and dependants of a job that are shown


def job_text(job: Job) -> str:
    """Write all that Redis keeps of a job, one field on each line."""
    error: ErrorRecord = job.error or {}
    values = [
        ("id", job.id),
        ("state", job.state),
        ("damaged", job.damaged or None),
        ("keys", tuple(map(shown_lane, job.keys))),
        ("task", job.task or "(lock)"),
        ("step", job.step or None),
        ("args", job.args),
        ("kwargs", job.kwargs),
        ("collects", collects_text(job)),
        ("priority", job.priority or None),
        ("uses", uses_text(job)),
        ("lacks", job.lacks),
        ("parked for", f"event {job.event}" if job.event else None),
        ("after", waits_text(job)),
        ("on failure of", job.on_failure_of),
        ("dependants", dependants_text(job)),
        ("attempt", job.attempt),
        ("losses", job.losses or None),
        ("node", job.node),
        ("fence", job.fence),
        ("progress", progress(job)),
        *((name, moment(at)) for name in ("submitted", "taken", "started", "ended") if (at := getattr(job, name))),
        ("result", job.result),
        ("error", error_text(job.error)),
        ("by", _author_text(error["by"], error.get("at"), ticket=error.get("ticket", "")) if error.get("by") else None),
        ("rollback", job.rollback),
        ("fault", error_text(job.fault)),
        *((name, act_text(act)) for name, act in job.acts.items()),
        ("course", "\n".join(map(_event_text, job.course))),
        ("traceback", error.get("traceback", "").strip()),
    ]
    return as_pairs(values)


def _event_text(event: Event) -> str:
    """Write an event of a job as a line, as in `2026-01-31 12:00:00Z raised, attempt 1 on a: Timeout: no answer`."""
    attempt = f", attempt {event.attempt}" if event.attempt else ""
    where = f" on {event.node}" if event.node and event.what not in ("submitted", "ready", "moved") else ""
    why = "".join(f": {part}" for part in (error_text(event.cause), event.why) if part)
    due = f"; goes on at {moment(event.due)}" if event.due else ""
    by = f" by {event.by}" if event.by else ""
    by += f" ({event.ticket})" if event.ticket else ""
    return " ".join(f"{moment(event.at)} {event.what}{attempt}{where}{by}{why}{due}".splitlines())


def error_text(error: ErrorRecord | None) -> str | None:
    return ": ".join(text for text in (error.get("type"), error.get("message")) if text) if error else None


def groups_text(groups: Groups) -> str:
    """Write counted jobs as a table, and below it how many there are in all."""
    rows = [(one.name or f"(no {groups.by})", one.count, one.at, one.example or None, one.text) for one in groups.rows]
    at_least = "" if groups.complete else "at least "
    return "\n".join(
        [as_table((groups.by, "jobs", "latest", "example", "message"), rows), f"{at_least}{groups.jobs} jobs"]
    )


def uses_text(job: Job) -> tuple[str, ...]:
    """Return what a job uses of quotas: `api/acme`, `licence: 2`, `items: 1 until its end`."""
    return tuple(
        name if use == Use() else f"{name}: {use.units}{' until its end' * (use.until == 'end')}"
        for name, use in job.uses.items()
    )


def waits_text(job: Job) -> str:
    """Return what a job runs after, 20 on a line each at most: `job 7f3 as part, open`, `event approved/42`."""
    lines = [
        (f"job {wait.job_id}" if wait.job_id else f"event {wait.event}")
        + f" as {wait.argument}" * bool(wait.argument)
        + ", open" * wait.open
        for wait in job.after[:_WAITS]
    ]
    return "\n".join([*lines, *([f"and {len(job.after) - _WAITS} more"] if len(job.after) > _WAITS else [])])


def dependants_text(job: Job) -> str:
    """Return the jobs that wait for a job, with how many there are beyond the first."""
    first, more = job.dependants[:_WAITS], job.dependants_count - len(job.dependants[:_WAITS])
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def collects_text(job: Job) -> str | None:
    """Return what a job collects: `12 calls (list), still open`."""
    if not job.collects:
        return None
    number, still = job.collects.calls, ", still open" if job.collects.open else ""
    return f"{number} call{'s' * (number != 1)} ({job.collects.how}){still}"


def progress(job: Job) -> str | None:
    return f"{job.progress[0]}/{job.progress[1]}" if job.progress else None


def act_text(act: ActNote | None) -> str | None:
    """Write an operator's act: by whom, when and why. None stays None."""
    return None if act is None else _author_text(act["by"], act["at"], act["why"], act.get("ticket", ""))


def _author_text(by: str, at: int | None, why: str = "", ticket: str = "") -> str:
    when = f" {moment(instant(at))}" if at else ""
    return f"by {by}{when}{f' ({ticket})' if ticket else ''}{f': {why}' if why else ''}"


def lane_text(lane: Lane, line: Iterable[Job]) -> str:
    """Write a lane, its line from the front on, and its last runs. `line`: the records of the jobs in `lane.jobs`."""
    now = datetime.now(UTC)
    holders = [
        f"{holder} since {moment(holder.since)}, fence {holder.fence}"
        + (f", lease good for {span_text(holder.lease)}" if holder.lease is not None else "")
        for holder in lane.holders
    ]
    values = [
        ("key", shown_lane(lane.key)),
        ("state", lane.state),
        *(("held by", holder) for holder in holders),
        ("paused", act_text(lane.pause)),
        ("until", lane.until),
        ("collects in", lane.collector),
        ("in line", lane.length),
    ]
    places = {job_id: place for place, job_id in enumerate(lane.jobs, 1)}
    standing = [
        (places[job.id], job.id, job.state, job.task or "(lock)", job.priority or None, span_text(_age(job, now)))
        for job in line
    ]
    ended = [(job.id, job.state, job.task, job.attempt, job.node, job.started, job.ended) for job in lane.runs]
    parts = [as_pairs(values)]
    if standing:
        parts.append(as_table(("place", "id", "state", "task", "priority", "age"), standing))
    if ended:
        parts.append("last runs\n" + as_table(("id", "state", "task", "attempt", "node", "started", "ended"), ended))
    return "\n\n".join(parts)


def _age(job: Job, now: datetime) -> float:
    return (now - job.submitted).total_seconds() if job.submitted else 0.0


def node_text(node: Node) -> str:
    """Write the queues and tasks of a node, and how busy the node is."""
    apart = ("tasks", "draining", "drained")
    named = [(field, getattr(node, field)) for field in node.__slots__ if field not in apart]
    tasks = [("task", task) for task in node.tasks]
    return as_pairs([*named, ("drained", drained(node)), *tasks])


def drained(node: Node) -> str:
    if node.drained:
        return act_text(node.drained) or ""
    return "its worker stops" if node.draining else ""
