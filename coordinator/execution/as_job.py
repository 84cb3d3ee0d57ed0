"""`self.retry` and `self.replace` of a task that is at work as a job.

For a message, Celery's `retry` publishes another message, and its `replace` publishes one under the same id. A job has
no message: its retry only raises, as Celery's own does in a request that is eager, and Redis has the job tried again.
The task that replaces it is a sub-task with an id of its own. The job keeps its lane until that has ended, and has its
result.
"""

from __future__ import annotations

import uuid

from celery.app.task import Task
from celery.canvas import Signature
from celery.exceptions import Ignore, Retry
from celery.result import AsyncResult

from coordinator.errors import NoRetry
from coordinator.execution.subresults import handles_in
from coordinator.jobs.current import working


class Replaced(Ignore):
    """Raised through a task that a sub-task replaces: `handle`."""

    def __init__(self, handle: AsyncResult) -> None:
        super().__init__("replaced by a sub-task")
        self.handle = handle


def adopt(task: Task) -> None:
    """Have `self.retry` and `self.replace` of this task do for a job what they do for a message.

    A call outside a job does what it did before. A repeated call changes nothing.
    """
    if "coordinator_adopted" in vars(task):
        return
    usual_retry, usual_replace = task.retry, task.replace

    def retry(*args: object, **kwargs: object) -> Retry:
        request = task.request
        if not _is_job(task):
            return usual_retry(*args, **kwargs)
        before, request.is_eager = request.is_eager, True
        try:
            usual_retry(*args, **kwargs)
        finally:
            request.is_eager = before
        raise NoRetry(f"{task.name}: self.retry(throw=False); a job is tried again only where its task raises")

    def replace(sig: Signature) -> object:
        if not _is_job(task):
            return usual_replace(sig)
        request, handle = task.request, task.AsyncResult(str(uuid.uuid4()))
        handles_in(handle)  # NoRetry where no backend would tell the end
        before, request.id = request.id, handle.id
        try:
            return usual_replace(sig)
        except Ignore:
            raise Replaced(handle) from None
        finally:
            request.id = before

    vars(task).update(coordinator_adopted=True, retry=retry, replace=replace)


def _is_job(task: Task) -> bool:
    """Not where a job calls another task in place, which is no job."""
    job = working.get()
    return job is not None and task.request.id == job.id and not task.request.is_eager
