"""A job, a node and an act as text for people."""

from __future__ import annotations

from coordinator.cli.format import pairs
from coordinator.fleet.nodes import Choice, Node
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import Job
from coordinator.jobs.spec import Cause
from coordinator.store.times import instant, moment
from coordinator.store.values import Act


def job_text(job: Job) -> str:
    """All that Redis keeps of a job, one field a line."""
    error: Cause = job.error or {}
    values = [
        ("id", job.id),
        ("state", job.state),
        ("keys", tuple(map(shown_lane, job.keys))),
        ("task", job.task or "(lock)"),
        ("step", job.step or None),
        ("args", job.args),
        ("kwargs", job.kwargs),
        ("priority", job.priority or None),
        ("weight", job.weight if job.weight != "1" else None),
        ("attempt", job.attempt),
        ("losses", job.losses or None),
        ("node", job.node),
        ("fence", job.fence),
        ("progress", progress(job)),
        *((name, moment(at)) for name in ("submitted", "taken", "started", "ended") if (at := getattr(job, name))),
        ("result", job.result),
        ("error", _said(job.error)),
        ("by", _told(error["by"], error.get("at")) if error.get("by") else None),
        ("rollback", job.rollback),
        ("fault", _said(job.fault)),
        *((name, told(act)) for name, act in job.acts.items()),
        ("traceback", error.get("traceback", "").strip().replace("\n", "\n" + " " * 11)),
    ]
    return pairs(values)


def _said(error: Cause | None) -> str | None:
    return f"{error.get('type')}: {error.get('message')}" if error else None


def progress(job: Job) -> str | None:
    return f"{job.progress[0]}/{job.progress[1]}" if job.progress else None


def told(act: Act | None) -> str | None:
    """An operator's act: by whom, when and why."""
    return None if act is None else _told(act["by"], act["at"], act["why"])


def _told(by: str, at: int | None, why: str = "") -> str:
    when = f" {moment(instant(at))}" if at else ""
    return f"by {by}{when}{f': {why}' if why else ''}"


def node_text(node: Node) -> str:
    """The queues and tasks of a node, how busy it is, and when it was last rung as the least busy."""
    apart = ("tasks", "choices", "draining", "drained")
    named = [(field, getattr(node, field)) for field in node.__slots__ if field not in apart]
    choices = [("chosen", _choice(choice)) for choice in node.choices]
    tasks = [("task", task) for task in node.tasks]
    return pairs([*named, ("drained", drained(node)), *choices, *tasks])


def _choice(choice: Choice) -> str:
    """Why this node was rung."""
    app, queue, *labels = choice["class"].split("\n")
    wanted = " ".join([queue, *labels]) + (f" of {app}" if app else "")
    beside = f", before {choice['next']} with {float(choice['next_score']):.3f}" if "next" in choice else ""
    passed = f", after {choice['passed']} less busy nodes that do not fit" if choice["passed"] else ""
    at = moment(instant(choice["at"]))
    return f"{at} for {wanted}: score {choice['score']:.3f}{beside}{passed}"


def drained(node: Node) -> str:
    if node.drained:
        return told(node.drained) or ""
    return "its worker stops" if node.draining else ""
