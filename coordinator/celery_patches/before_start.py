"""Runs a check before the body of each task, which may prevent the body.

Handlers of Celery's signal `task_prerun` cannot do that: Celery logs what they raise and runs the body.
"""

from __future__ import annotations

from collections.abc import Callable

from celery import Celery
from celery.app.task import Task
from celery.exceptions import Ignore


def check_first(app: Celery, may_run: Callable[[Task], bool]) -> None:
    """Have each task run only if `may_run(task)`. Otherwise its message is acknowledged, and no result is stored.

    Call this before the worker's processes build their tracers, which look for `before_start` in the tasks' classes.
    """
    for kind in {type(task) for task in app.tasks.values() if not task.name.startswith(("celery.", "coordinator."))}:
        _wrap(kind, may_run)


def _wrap(kind: type[Task], may_run: Callable[[Task], bool]) -> None:
    usual = getattr(vars(kind).get("before_start"), "usual", kind.before_start)

    def before_start(task: Task, task_id: str, args: object, kwargs: object) -> object:
        if not may_run(task):
            raise Ignore
        return usual(task, task_id, args, kwargs)

    before_start.usual = usual  # type: ignore[attr-defined]
    kind.before_start = before_start
