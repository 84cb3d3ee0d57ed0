"""The limits of a task as its app declares them.

Celery's remote control writes other ones into the task of a worker, for the messages that come there. Processes that
the worker starts later inherit them. Jobs go by what is declared, wherever they are submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # plain clients load no Celery
    from celery.app.task import Task

LIMITS = ("rate_limit", "time_limit", "soft_time_limit")
_KEPT = "coordinator_declared"


def keep(task: Task) -> None:
    """Remember the limits before remote control changes them for the first time."""
    vars(task).setdefault(_KEPT, {name: getattr(task, name, None) for name in LIMITS})


def declared(task: Task | None, name: str) -> float | None:
    """The limit of this name as the app declares it; None where it has none, or nobody here has the task."""
    kept: dict[str, float | None] = {} if task is None else vars(task).get(_KEPT, {})
    return kept[name] if name in kept else getattr(task, name, None)


def rate_limit(task: Task) -> str:
    """The rate limit that the app declares; "" where that limits nothing: `"0"` is none to Celery."""
    from celery.utils.time import rate

    limit = declared(task, "rate_limit")
    try:
        return str(limit) if rate(limit) else ""
    except ValueError:  # Celery refuses it when a worker starts
        return str(limit)


def undo(task: Task, options: dict[str, object]) -> None:
    """Put the declared limits in place of those that Celery took from the task into the options of a call."""
    kept: dict[str, object] = vars(task).get(_KEPT, {})
    options |= {name: limit for name, limit in kept.items() if name in options and options[name] == getattr(task, name)}
