"""The tasks that follow on a job in place: links, the next steps of its chain, the body of its chord.

A keyed one goes through its lane, in place. A plain one is called where it would be published, and goes on with its own
chain and chord, as a worker would: Celery's eager calls leave these to whoever calls the whole canvas.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from celery import Celery
from celery.app.task import Context, Task
from celery.result import AsyncResult, EagerResult

from coordinator.execution.canvas import Ended, go_on
from coordinator.keyed_task import KeyedTasks

_OF_CELERY = ("link", "link_error", "headers", "stamped_headers")


@contextmanager
def called_in_place(app: Celery) -> Iterator[None]:
    """Call each plain task that is published meanwhile."""
    keyed_tasks: KeyedTasks = app.coordinator.keyed_tasks
    usual = app.send_task

    def send_task(
        name: str, args: Sequence[object] | None = None, kwargs: Mapping[str, object] | None = None, **options: object
    ) -> AsyncResult:
        task = app.tasks.get(name)
        if task is None or (keyed_tasks.of(task) is not None and options.get("coordinate") is not False):
            return usual(name, args, kwargs, **options)
        return _called(app, task, args or (), kwargs or {}, options)

    app.send_task = send_task
    try:
        yield
    finally:
        app.send_task = usual


def _called(
    app: Celery, task: Task, args: Sequence[object], kwargs: Mapping[str, object], options: Mapping[str, object]
) -> EagerResult:
    task_id = options.get("task_id") or str(uuid.uuid4())
    end = task.apply(
        args, kwargs, task_id=task_id, throw=False,
        **{name: options[name] for name in _OF_CELERY if options.get(name) is not None},
    )  # fmt: skip
    request = Context(
        id=task_id, task=task.name, args=args, kwargs=kwargs, chain=options.get("chain"), chord=options.get("chord"),
        group=options.get("group_id"), group_index=options.get("group_index"), delivery_info={}, ignore_result=True,
    )  # fmt: skip
    go_on(app, request, Ended(end.state, end.result, end.traceback), kept=False)
    return end
