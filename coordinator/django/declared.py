"""The tasks of Django that are declared for our backend. Each is also a task of Celery, under its module path.

    @task
    @coordinate(key="order/{order_id}", uses="api/acme", max_attempts=3)
    def ship(order_id): ...

So workers, `coordinator jobs`, metrics and Flower know each task by its own name, as they know Celery's tasks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, TypeVar, Unpack

from celery import shared_task
from celery.app.task import Task as CeleryTask

from coordinator.django.framework import Task
from coordinator.django.project import project
from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from coordinator.core.jobs.options import KeyedTaskOptions

F = TypeVar("F", bound=Callable[..., object])

_OPTION, _KNOWN = "coordinator_option", "coordinator_known"  # attributes of a task's function


def coordinate(**option: Unpack[KeyedTaskOptions]) -> Callable[[F], F]:
    """Give the jobs of a task keys, quotas and other options. Stands below `@task`, and takes what the option
    `coordinate` of a keyed Celery task takes, except `priority`, which Django's task has itself.

    A wrong option is told by `manage.py check --deploy`, by the worker as it starts, and at the first enqueue.
    """
    if "priority" in option:
        raise InvalidJob("coordinate takes no priority: write @task(priority=…), or task.using(priority=…)")

    def mark(function: F) -> F:
        if isinstance(function, Task):
            raise InvalidJob(f"{function.module_path}: write @coordinate(…) below @task, next to the function")
        setattr(function, _OPTION, option)
        return function

    return mark


class DeclaredTask(Task):
    """A task that our backend enqueues: known to Celery once it is declared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not getattr(self.func, _KNOWN, False):  # `using` makes further objects of the same task
            setattr(self.func, _KNOWN, True)
            _make_known(self)

    @property
    def celery_task(self) -> CeleryTask:
        return project().celery_app.tasks[self.module_path]


def _make_known(task: DeclaredTask) -> None:
    """Register the task in all Celery apps, also in those that are made later."""

    # Imported in them: a process that only enqueues runs nothing.
    def plain(*args: object, **kwargs: object) -> object:
        from coordinator.django.body import run

        return run(task, args, kwargs)

    async def awaited(*args: object, **kwargs: object) -> object:
        from coordinator.django.body import run_async

        return await run_async(task, args, kwargs)

    body: Callable[..., object] = awaited if inspect.iscoroutinefunction(task.func) else plain
    option = getattr(task.func, _OPTION, None)
    update_wrapper(body, task.func)
    signature = inspect.signature(task.func)
    if task.takes_context:  # which the worker puts in front of the arguments of the call
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    body.__signature__ = signature  # type: ignore[attr-defined]
    shared_task(name=task.module_path, ignore_result=False, **({"coordinate": option} if option else {}))(body)
