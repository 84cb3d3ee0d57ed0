"""Runs a check before the body of each task, which can keep the body from running.

A handler of Celery's signal `task_prerun` cannot do that: Celery logs each exception of a handler, and runs the body.
"""

from __future__ import annotations

from collections.abc import Callable

from celery import Celery
from celery.app.task import Task
from celery.exceptions import Ignore


def check_first(app: Celery, may_run: Callable[[Task], bool]) -> None:
    """Call `may_run(task)` before each run of a task of the app. Where it returns False, the body does not run, the
    message is acknowledged, and no result is stored.

    To be called before the processes of the worker build their tracers, which read `before_start` from the class of
    each task.
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
