"""Remembers the rate limit and time limits of a task as its app declares them.

The remote control commands `rate_limit` and `time_limit` of Celery write other limits into the task object of a worker,
for the messages that this worker receives. Processes that the worker starts later inherit them. Jobs keep to the
declared limits, in whichever process they are submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # clients that only submit jobs do not import Celery
    from celery.app.task import Task

LIMITS = ("rate_limit", "time_limit", "soft_time_limit")
_KEPT = "coordinator_declared"


def keep(task: Task) -> None:
    """Save the limits of a task, before remote control changes them for the first time; later calls change nothing."""
    vars(task).setdefault(_KEPT, {name: getattr(task, name, None) for name in LIMITS})


def declared(task: Task | None, name: str) -> float | None:
    """The limit `name` (one of LIMITS) of a task as the app declares it; None where the task has none or is None."""
    kept: dict[str, float | None] = {} if task is None else vars(task).get(_KEPT, {})
    return kept[name] if name in kept else getattr(task, name, None)


def rate_limit(task: Task) -> str:
    """The rate limit of a task as the app declares it; "" for no limit, which Celery also takes `"0"` for."""
    from celery.utils.time import rate

    limit = declared(task, "rate_limit")
    try:
        return str(limit) if rate(limit) else ""
    except ValueError:  # not a rate: Celery refuses the task when a worker starts
        return str(limit)


def undo(task: Task, options: dict[str, object]) -> None:
    """Write the declared limits into the options of a call, where Celery has copied others from the task object."""
    kept: dict[str, object] = vars(task).get(_KEPT, {})
    options |= {name: limit for name, limit in kept.items() if name in options and options[name] == getattr(task, name)}
