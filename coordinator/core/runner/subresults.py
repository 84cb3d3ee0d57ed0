"""Sub-results: a job that returns handles of other tasks or jobs is parked until all of these have ended. A parked job
keeps its lanes, but occupies no worker. Redis stores the ids of the sub-results with the parked job. Whether a task has
ended is read from the result backend; whether a job has ended, from its record in Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from celery import Celery, current_task, signals
from celery.app.task import Task
from celery.result import AsyncResult, GroupResult, ResultSet

from coordinator.core.celery_patches.before_start import check_first
from coordinator.core.celery_patches.waits import watch_waits
from coordinator.core.jobs import chain
from coordinator.core.jobs.current import CurrentJob, working
from coordinator.core.jobs.spec import ATTEMPT, CHILD, Handles
from coordinator.core.jobs.submission import Submission
from coordinator.core.lanes.client import LaneClient
from coordinator.core.runner.claim import TASK
from coordinator.core.runner.own_lane import behind_own, waiting_for
from coordinator.core.store.steps import child_began, child_ended
from coordinator.errors import CoordinatorError, NoRetry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The handle of a submitted job. Waiting for the job needs no result backend: its record in Redis has its state."""

    id: str


def handles_in(value: object) -> Handles | None:
    """Find the sub-results in a task's return value: an AsyncResult, a GroupResult, a Submission or a list of these.

    Returns {"ids": [the id of each sub-result, None for a skipped job], "one": True if the value is an AsyncResult};
    None if `value` has no sub-results. Raises NoRetry for a sub-result whose task stores no result, since the
    coordinator could not see that the task has ended, and for a list that also holds other values.
    """
    if not isinstance(value, list | tuple | AsyncResult | ResultSet | Submission):
        return None
    values = list(value) if isinstance(value, list | tuple) else [value]
    if any(
        isinstance(handle, list | tuple) and any(isinstance(two, AsyncResult) for two in handle) for handle in values
    ):
        raise NoRetry("the task returned sub-results in a list within a list: return one flat list of them")
    if not any(isinstance(handle, AsyncResult | ResultSet | Submission) for handle in values):
        return None
    if not all(handle is None or isinstance(handle, AsyncResult | ResultSet | Submission) for handle in values):
        raise NoRetry("the task returned a list of sub-results and other values; it may also hold None, nothing else")
    flat = list(flattened(values))
    for handle in flat:
        if isinstance(handle, AsyncResult) and (handle.ignored or type(handle.backend).__name__ == "DisabledBackend"):
            raise _mute(handle.id)
    return {"ids": [None if handle is None else handle.id for handle in flat], "one": isinstance(value, AsyncResult)}


def flattened(values: Sequence[object]) -> Iterator[AsyncResult | JobHandle | None]:
    """Yield the handles in `values`, those of a group one by one; None for a skipped job and for any other value."""
    for handle in values:
        if isinstance(handle, GroupResult | ResultSet):
            yield from flattened(handle.results)
        elif isinstance(handle, Submission):
            yield JobHandle(handle.id) if handle.accepted else None
        else:
            yield handle if isinstance(handle, AsyncResult) else None


def _mute(task_id: str) -> NoRetry:
    return NoRetry(f"sub-result {task_id}: its task stores no result, so its end could not be waited for")


def check_stored(job: CurrentJob, ids: Sequence[str | None]) -> None:
    """Raise NoRetry if one of the tasks `ids`, the sub-results of `job`, stores no result. `job.mute` has the ids of
    such tasks, from the messages that the job published; the handles of a group, chain or chord do not tell.
    """
    for task_id in ids:
        if task_id in job.mute:
            raise _mute(task_id)


def _mute_in(app: Celery, headers: Mapping[str, str], body: object) -> Iterator[str]:
    """Yield the ids of those tasks of a message that store no result: its own task, the rest of its chain, and the
    body of its chord. `headers`, `body`: of the message, as Celery's `before_task_publish` passes them.
    """
    if headers.get("ignore_result"):
        yield headers["id"]
    embed = body[2] if isinstance(body, list | tuple) and len(body) == 3 else {}
    for part in (*(embed.get("chain") or ()), embed.get("chord")):
        for inner in chain.inner(part):
            options = inner.get("options") or {}
            ignored = options.get("ignore_result")
            if getattr(app.tasks.get(inner["task"]), "ignore_result", False) if ignored is None else ignored:
                yield options.get("task_id", "")


def _parent_of(task: Task, app: Celery) -> str:
    """Return the id of the job that published the running `task`; "" if no job did, if a job runs it now (as its own
    task, or by calling it like a function), or if the task belongs to an app other than `app`.
    """
    if working.get() is not None:
        return ""
    return str(getattr(task.request, CHILD, None) or "") if task.app is app else ""


@contextmanager
def _tolerant(parent: str) -> Iterator[None]:
    """Log a CoordinatorError of the block, as when Redis does not answer, instead of raising it: a sub-task of the job
    `parent` runs all the same.
    """
    try:
        yield
    except CoordinatorError as error:
        logger.info("cannot tell Redis about a sub-task of job %s; maintenance checks it later: %s", parent, error)


class SubtaskContext(Protocol):
    """The attributes of a `WorkerContext` that reports of sub-tasks use: its node, incarnation and lanes."""

    @property
    def node(self) -> str: ...

    @property
    def lanes(self) -> LaneClient: ...

    @property
    def incarnation(self) -> str: ...


def _begins(task: Task, app: Celery, context: Callable[[], SubtaskContext]) -> bool:
    """Record in Redis on which node the sub-task `task` begins. Returns False for a sub-task that began before, was
    delivered again, and must not run: the job that published it no longer waits for it. True for any other task.
    """
    parent = _parent_of(task, app)
    if not parent or not (worker := context()).incarnation:
        return True
    request, verdict = task.request, 0
    with _tolerant(parent):
        fence = getattr(request, ATTEMPT, 0)
        verdict = child_began(worker.lanes.store, parent, request.id, fence, worker.node, worker.incarnation)
    if verdict < 0:
        logger.warning(
            "sub-task %s was delivered again, and does not run: job %s no longer waits for it", request.id, parent
        )
    return verdict >= 0


def track_subtasks(app: Celery, context: Callable[[], SubtaskContext]) -> None:
    """Connect the signals that follow a job's sub-tasks. Each message that a job publishes gets headers with the job's
    id and the fence of its attempt; when a worker begins and ends such a sub-task, Redis records that. A sub-task that
    is delivered again does not run if the attempt that published it has ended without waiting for it.

    `context` returns the node, incarnation and lanes of the worker that this process belongs to.
    """

    def mark(sender: str, headers: object = None, body: object = None, **_: object) -> None:
        """Add the job's id and fence to the headers of a message that a job publishes, or one of its sub-tasks (the
        next task of a chain, the body of a chord). Does not mark the wake-ups of runners.
        """
        job = working.get()
        of_child = current_task.request if current_task else None
        parent = job.id if job else getattr(of_child, CHILD, None)
        if parent and sender != TASK and isinstance(headers, dict):
            headers.setdefault(CHILD, parent)
            headers.setdefault(ATTEMPT, job.fence if job else getattr(of_child, ATTEMPT, 0))
            if job:
                job.mute.update(_mute_in(app, headers, body))
                job.behind.update(behind_own(app, job.keys, headers, body))

    def ended(task: Task, **_: object) -> None:
        if parent := _parent_of(task, app):
            with _tolerant(parent):
                child_ended(context().lanes.store, parent, task.request.id)

    watch_waits(waiting_for)
    signals.before_task_publish.connect(mark, weak=False, dispatch_uid=f"coordinator-mark-{id(app)}")
    check_first(app, lambda task: _begins(task, app, context))
    signals.task_postrun.connect(ended, weak=False, dispatch_uid=f"coordinator-told-{id(app)}")
