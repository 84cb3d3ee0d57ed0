"""`self.request`, `self.retry` and `self.replace` of a task that runs as a job.

The body sees the chain, the chord and the links of its call, and whether its result is kept. The tracer does not, since
it would publish and store by them: that comes once Redis has accepted the outcome.

Celery's `retry` publishes the message again, and its `replace` publishes another task under the same id. A job has no
message. Its retry only raises, as Celery's own does for an eager request, and Redis schedules the next attempt.

`replace` with a call or a chain makes it the job's next steps, in the job's lanes. Calls for other lanes, groups and
chords become sub-tasks with ids of their own: the job keeps its lanes until they have ended, and takes their result.
Sub-tasks that need the job's own lane could never begin, and are refused.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps

from celery.app.task import Context, Task
from celery.canvas import Signature
from celery.exceptions import Ignore, Retry
from celery.result import AsyncResult

from coordinator.errors import NoRetry
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, working
from coordinator.runner.own_lane import WAY_OUT, lanes_in
from coordinator.runner.subresults import handles_in

logger = logging.getLogger(__name__)

_ALONE = dict.fromkeys(("chain", "chord", "callbacks", "errbacks"))


class GoesOn(Ignore):
    """Raised through a task that is replaced by further steps of its job."""

    def __init__(self, signature: Signature) -> None:
        super().__init__("replaced by other steps")
        self.signature = signature


class Replaced(Ignore):
    """Raised through a task that is replaced by the sub-task `handle`."""

    def __init__(self, handle: AsyncResult) -> None:
        super().__init__("replaced by a sub-task")
        self.handle = handle


def adopt(task: Task) -> None:
    """Make `self.request`, `self.retry` and `self.replace` of this task work in jobs, and only there.

    Adopting a task again changes nothing.
    """
    if "coordinator_adopted" in vars(task):
        return
    usual_retry, usual_replace, usual_run = task.retry, task.replace, task.run

    @wraps(usual_run)
    def run(*args: object, **kwargs: object) -> object:
        if not _is_job(task):
            return usual_run(*args, **kwargs)
        call = task.request.coordinator_call
        with in_one_process(task.request.id), _with(task.request, task.request.coordinator_shown):
            return call(usual_run, *args, **kwargs)

    def retry(*args: object, **kwargs: object) -> Retry:
        if not _is_job(task):
            return usual_retry(*args, **kwargs)
        with _with(task.request, {"is_eager": True}):
            usual_retry(*args, **kwargs)
        raise NoRetry(f"{task.name}: self.retry(throw=False); a job is tried again only where its task raises")

    def replace(sig: Signature) -> object:
        if not _is_job(task):
            return usual_replace(sig)
        job = working.get()
        if job and _is_steps(task, sig, job):
            raise GoesOn(sig)
        handle = task.AsyncResult(str(uuid.uuid4()))
        handles_in(handle)  # raises NoRetry if there is no backend to tell the end
        with _with(task.request, {"id": handle.id, **_ALONE}):
            try:
                return usual_replace(sig)
            except Ignore:
                raise Replaced(handle) from None

    vars(task).update(coordinator_adopted=True, retry=retry, replace=replace, run=run)


@contextmanager
def in_one_process(job_id: str) -> Iterator[None]:
    """End a process that is forked in here as it comes out: the job has its parent's outcome, and no handler, message
    or thread of its parent is the child's.
    """
    parent, status = os.getpid(), 1
    try:
        yield
        status = 0
    finally:
        if os.getpid() != parent:
            logger.warning("job %s: a process that its body forked came back from the body, and ends here", job_id)
            os._exit(status)


@contextmanager
def _with(request: Context, fields: Mapping[str, object]) -> Iterator[None]:
    """Give the request these fields for a while."""
    own = vars(request)
    before = {name: own.get(name) for name in fields}
    own.update(fields)
    try:
        yield
    finally:
        own.update(before)


def _is_steps(task: Task, sig: Signature, job: CurrentJob) -> bool:
    """True if `sig` can become steps of the job, False for a sub-task. Raises NoRetry if it can be neither."""
    stays, odd, own = not (chain.is_canvas(sig) or job.undoing), bool(chain.is_chain(sig) and sig.options), []
    for number, part in enumerate([sig] if chain.is_canvas(sig) else chain.tasks_of(sig)):
        odd = odd or not set(chain.options_of(part)) <= chain.STEP_OPTIONS | {"coordinate"}
        for call, lanes in lanes_in(task.app, part, int(number > 0)):
            mine = [(call["task"], lane) for lane in lanes or () if lane in job.keys]
            own += mine
            if lanes is None or len(mine) < len(lanes) or (mine and chain.is_canvas(part)):
                stays = False
    if stays and (own or not odd):
        return True
    for name, lane in own:
        raise NoRetry(f"{task.name}: self.replace: {name} would wait for the job in its own lane {lane!r}: {WAY_OUT}")
    return False


def _is_job(task: Task) -> bool:
    """True if this task runs as a job; False for a task that a job calls like a function."""
    job = working.get()
    return job is not None and task.request.id == job.id and not task.request.is_eager
