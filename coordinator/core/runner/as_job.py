"""Makes `self.request`, `self.retry` and `self.replace` of a Celery task work where the task runs as a job, and has a
task that returns `wait_for` end its attempt without a result.

The body of the task sees the chain, the chord and the links of its call in `self.request`, and whether its result is
stored. Celery's tracer does not see them, since it would publish the links and store the result right after the body;
the outbox does that later, when Redis has accepted the outcome.

Celery's `retry` publishes the message again, and Celery's `replace` publishes another task under the same id. A job has
no message. `self.retry` in a job only raises `Retry`, as for an eager request, and Redis schedules the next attempt.

`self.replace` with a call or a chain makes these the job's next steps, in the job's lanes. Calls for other lanes,
groups and chords become sub-tasks with ids of their own: the job keeps its lanes until the sub-tasks have ended, and
takes over their result. Sub-tasks in the job's own lane could never begin, and are refused.
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

from coordinator.core.events.wait import WaitFor
from coordinator.core.jobs import chain
from coordinator.core.jobs.current import CurrentJob, working
from coordinator.core.runner.own_lane import WAY_OUT, lanes_in
from coordinator.core.runner.subresults import handles_in
from coordinator.errors import NoRetry

logger = logging.getLogger(__name__)

_ALONE = dict.fromkeys(("chain", "chord", "callbacks", "errbacks"))


class GoesOn(Ignore):
    """Raised by `self.replace` where the tasks of `signature` become the next steps of the job."""

    def __init__(self, signature: Signature) -> None:
        super().__init__("replaced by other steps")
        self.signature = signature


class Awaits(Ignore):
    """Raised where the body of a job has returned `wait_for`: the job is to wait for an event."""

    def __init__(self, wait: WaitFor) -> None:
        super().__init__(f"waits for the event {wait.event}")
        self.wait = wait


class Replaced(Ignore):
    """Raised by `self.replace` where the job is to wait for the sub-task `handle`, and takes over its result."""

    def __init__(self, handle: AsyncResult) -> None:
        super().__init__("replaced by a sub-task")
        self.handle = handle


def adopt(task: Task) -> None:
    """Replace `retry`, `replace` and `run` of this task by versions that work in jobs. Where the task does not run as a
    job, they call Celery's own. A second call for the same task changes nothing.
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
            return _unless_it_waits(call(usual_run, *args, **kwargs))

    def retry(*args: object, **kwargs: object) -> Retry:
        if not _is_job(task):
            return usual_retry(*args, **kwargs)
        with _with(task.request, {"is_eager": True}):
            usual_retry(*args, **kwargs)
        raise NoRetry(f"{task.name}: self.retry(throw=False) in a job, which is retried only if the task raises")

    def replace(sig: Signature) -> object:
        if not _is_job(task):
            return usual_replace(sig)
        job = working.get()
        if job and _is_steps(task, sig, job):
            raise GoesOn(sig)
        handle = task.AsyncResult(str(uuid.uuid4()))
        handles_in(handle)  # raises NoRetry without a result backend, which must tell when the sub-task has ended
        with _with(task.request, {"id": handle.id, **_ALONE}):
            try:
                return usual_replace(sig)
            except Ignore:
                raise Replaced(handle) from None

    vars(task).update(coordinator_adopted=True, retry=retry, replace=replace, run=run)


def _unless_it_waits(value: object) -> object:
    """Return the value of a body. Raises Awaits for a wait, which is no success yet for the tracer."""
    if isinstance(value, WaitFor):
        raise Awaits(value)
    return value


@contextmanager
def in_one_process(job_id: str) -> Iterator[None]:
    """End at once a process that a task's body forked, if it leaves this block like its parent. The outcome of the job
    comes from the parent alone, and a fork must not run the parent's handlers or acknowledge its messages again.
    """
    parent, status = os.getpid(), 1
    try:
        yield
        status = 0
    finally:
        if os.getpid() != parent:
            logger.warning("job %s: a process that its task forked returned from the task's body; it is ended", job_id)
            os._exit(status)


@contextmanager
def _with(request: Context, fields: Mapping[str, object]) -> Iterator[None]:
    """Set the attributes `fields` of a task's request for the length of this block."""
    own = vars(request)
    before = {name: own.get(name) for name in fields}
    own.update(fields)
    try:
        yield
    finally:
        own.update(before)


def _is_steps(task: Task, sig: Signature, job: CurrentJob) -> bool:
    """Check what `self.replace(sig)` means in `job`: True if the tasks of `sig` become the job's next steps, False if
    `sig` is to run as a sub-task. Raises NoRetry if neither is possible: a task needs one of the job's own lanes, and
    cannot be a step.
    """
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
    """True if the running task is a job's own; False outside jobs, and for a task that a job calls like a function."""
    job = working.get()
    return job is not None and task.request.id == job.id and not task.request.is_eager
