"""Keyed tasks that collect with how="list": a call has arguments of its own, and the body gets one list of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Protocol, cast

from celery import Celery

from coordinator.core.jobs.collecting import Call
from coordinator.core.keyed_task.coordinate import is_listed

# True within the `apply_async` of such a task in an app that calls its tasks eagerly, until Celery applies the task.
_called: ContextVar[bool] = ContextVar("coordinator_called", default=False)


class ListedTask(Protocol):
    """The attributes of a Celery task that `adopt` reads and sets."""

    typing: bool
    apply_async: Callable[..., object]
    apply: Callable[..., object]


def adopt_all(app: Celery, ways: Mapping[str, Callable[..., object]]) -> None:
    """Adopt the tasks that the app has, and those that it makes or registers later. `ways`: by name, the methods by
    which it does.
    """
    for way, make in ways.items():
        setattr(app, way, _adopting(app, make))
    for task in app._tasks.values():
        adopt(app, task)


def _adopting(app: Celery, make: Callable[..., object]) -> Callable[..., object]:
    """Wrap a method of the app that makes or registers a task, so that it adopts the task."""

    @wraps(make)
    def made(*args: object, **options: object) -> object:
        task = make(*args, **options)
        adopt(app, cast(ListedTask, task))
        return task

    return made


def adopt(app: Celery, task: ListedTask) -> None:
    """If the body gets a list of calls, have Celery check no arguments of a call against it; where the app calls its
    tasks eagerly, each call is a list of one.
    """
    if not is_listed(getattr(task, "coordinate", None)) or "apply_async" in vars(task):
        return
    usual, apply = task.apply_async, task.apply

    @wraps(usual)
    def apply_async(*args: object, **options: object) -> object:
        mark = _called.set(bool(app.conf.task_always_eager))
        try:
            return usual(*args, **options)
        finally:
            _called.reset(mark)

    @wraps(apply)
    def applied(
        args: Sequence[object] | None = None, kwargs: Mapping[str, object] | None = None, *rest: object,
        **options: object,
    ) -> object:  # fmt: skip
        if not _called.get():
            return apply(args, kwargs, *rest, **options)
        _called.set(False)  # its body may apply the task with a list
        return apply(([Call.of(args or (), kwargs or {})],), {}, *rest, **options)

    task.typing, task.apply_async, task.apply = False, apply_async, applied
