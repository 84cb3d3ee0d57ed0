"""Writes a job, a node and an act as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from coordinator.cli.format import as_pairs, as_table
from coordinator.fleet.nodes import Node
from coordinator.jobs.history import Event
from coordinator.jobs.record import Job
from coordinator.jobs.spec import ErrorRecord
from coordinator.jobs.validation import shown_lane
from coordinator.lanes.view import Lane
from coordinator.store.times import instant, moment, span_text
from coordinator.store.values import ActNote


def job_text(job: Job) -> str:
    """Write all that Redis keeps of a job, one field a line."""
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
        ("priority", job.priority or None),
        ("exclusive", job.exclusive or None),
        ("attempt", job.attempt),
        ("losses", job.losses or None),
        ("node", job.node),
        ("fence", job.fence),
        ("progress", progress(job)),
        *((name, moment(at)) for name in ("submitted", "taken", "started", "ended") if (at := getattr(job, name))),
        ("result", job.result),
        ("error", _error_text(job.error)),
        ("by", _author_text(error["by"], error.get("at"), ticket=error.get("ticket", "")) if error.get("by") else None),
        ("rollback", job.rollback),
        ("fault", _error_text(job.fault)),
        *((name, act_text(act)) for name, act in job.acts.items()),
        ("course", "\n".join(map(_event_text, job.course))),
        ("traceback", error.get("traceback", "").strip()),
    ]
    return as_pairs(values)


def _event_text(event: Event) -> str:
    """One line of a job's course, as in `2026-01-31 12:00:00Z raised, attempt 1 on a: Timeout: no answer`."""
    attempt = f", attempt {event.attempt}" if event.attempt else ""
    where = f" on {event.node}" if event.node and event.what not in ("submitted", "ready", "moved") else ""
    why = "".join(f": {part}" for part in (_error_text(event.cause), event.why) if part)
    due = f"; goes on at {moment(event.due)}" if event.due else ""
    by = f" by {event.by}" if event.by else ""
    by += f" ({event.ticket})" if event.ticket else ""
    return " ".join(f"{moment(event.at)} {event.what}{attempt}{where}{by}{why}{due}".splitlines())


def _error_text(error: ErrorRecord | None) -> str | None:
    return ": ".join(text for text in (error.get("type"), error.get("message")) if text) if error else None


def progress(job: Job) -> str | None:
    return f"{job.progress[0]}/{job.progress[1]}" if job.progress else None


def act_text(act: ActNote | None) -> str | None:
    """Write an operator's act: by whom, when and why."""
    return None if act is None else _author_text(act["by"], act["at"], act["why"], act.get("ticket", ""))


def _author_text(by: str, at: int | None, why: str = "", ticket: str = "") -> str:
    when = f" {moment(instant(at))}" if at else ""
    return f"by {by}{when}{f' ({ticket})' if ticket else ''}{f': {why}' if why else ''}"


def lane_text(lane: Lane, line: Iterable[Job]) -> str:
    """Write a lane, its line in its order, and its last runs. `line`: the jobs of `lane.jobs`."""
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
        ("limit", f"{lane.limit} {act_text(lane.limited) or ''}".strip()),
        ("paused", act_text(lane.pause)),
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
    """Write the queues and tasks of a node, and how busy it is."""
    apart = ("tasks", "draining", "drained")
    named = [(field, getattr(node, field)) for field in node.__slots__ if field not in apart]
    tasks = [("task", task) for task in node.tasks]
    return as_pairs([*named, ("drained", drained(node)), *tasks])


def drained(node: Node) -> str:
    if node.drained:
        return act_text(node.drained) or ""
    return "its worker stops" if node.draining else ""
