"""What a worker runs for an enqueued task of Django."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

from asgiref.sync import sync_to_async
from celery import current_task
from django.utils import timezone

from coordinator.core.jobs.current import current_job
from coordinator.core.runner.attempt import is_signalled
from coordinator.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from coordinator.django.project import project
from coordinator.django.results import amend, new_result, result_of
from coordinator.errors import Conflict, CoolDown, StoreUnavailable


def run(task: Task, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Call the function of a task, between Django's signals `task_started` and `task_finished`. Each attempt sends
    both, but for one that is put back to its place (Conflict, CoolDown) or ends with its process.
    """
    run = _Run(task, args, kwargs)
    try:
        value = normalize_json(task.func(*run.context, *args, **kwargs))
    except (Exception, SystemExit) as error:
        run.failed(error)
        raise
    return run.succeeded(value)


async def run_async(task: Task, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """As `run`, for a function that is `async def`. Receivers of the signals may ask the database: they are called in
    the thread for Django's synchronous code.
    """
    run = await sync_to_async(_Run)(task, args, kwargs)
    try:
        value = normalize_json(await task.func(*run.context, *args, **kwargs))
    except (Exception, SystemExit) as error:
        await sync_to_async(run.failed)(error)
        raise
    return await sync_to_async(run.succeeded)(value)


class _Run:
    """One attempt at a task. `context`: what the function takes in front of its arguments."""

    def __init__(self, task: Task, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        self._result, self._sender = _begun(task, args, kwargs), type(task.get_backend())
        task_started.send(self._sender, task_result=self._result)
        self.context = (TaskContext(task_result=self._result),) if task.takes_context else ()

    def succeeded(self, value: object) -> object:
        amend(self._result, _return_value=value)
        self._finish(TaskResultStatus.SUCCESSFUL)
        return value

    def failed(self, error: BaseException) -> None:
        if isinstance(error, Conflict | CoolDown) or is_signalled():
            return
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        text = "".join(traceback.format_exception(error))
        amend(self._result, errors=[TaskError(exception_class_path=path, traceback=text)])
        self._finish(TaskResultStatus.FAILED)

    def _finish(self, status: TaskResultStatus) -> None:
        amend(self._result, status=status, finished_at=timezone.now())
        task_finished.send(self._sender, task_result=self._result)


def _begun(task: Task, args: Sequence[object], kwargs: Mapping[str, object]) -> TaskResult:
    job, request, coordinator = current_job(), current_task.request, project().coordinator
    if job and not coordinator._is_eager:
        try:
            result = result_of(coordinator, job.id)
        except StoreUnavailable as error:  # nothing was done yet: this attempt does not count
            raise Conflict(f"Redis does not tell about job {job.id}: {error}") from error
        amend(result, errors=[])  # of the attempt before this one
        return result
    # Called past the lanes, as a task of Celery, or eagerly.
    result = new_result(task, request.id, args, kwargs, TaskResultStatus.RUNNING)
    now = timezone.now()
    amend(result, started_at=now, last_attempted_at=now, worker_ids=[request.hostname or "eager"])
    return result
