"""Sub-results: a job that returns handles of other tasks is parked until all of them end. It keeps its lane, but no
worker. Redis keeps the handles as ids; the state of a task is in the backend, that of a job in its record.
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

from coordinator.celery_patches.before_start import check_first
from coordinator.celery_patches.waits import watch_waits
from coordinator.errors import CoordinatorError, NoRetry
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, working
from coordinator.jobs.spec import ATTEMPT, CHILD, Handles
from coordinator.jobs.submission import Submission
from coordinator.lanes.client import LaneClient
from coordinator.runner.claim import TASK
from coordinator.runner.own_lane import behind_own, waiting_for

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The handle of a job, which needs no result backend."""

    id: str


def handles_in(value: object) -> Handles | None:
    """Read the handles from a task's return value: an AsyncResult, a GroupResult, a Submission or a list of them.

    Returns {"ids": [id, or None for a skipped job, …], "one": True for a single handle}; None if the value has no
    handle. Raises NoRetry for a task that stores no result, since its end could not be seen.
    """
    if not isinstance(value, list | tuple | AsyncResult | ResultSet | Submission):
        return None
    values = list(value) if isinstance(value, list | tuple) else [value]
    if any(
        isinstance(handle, list | tuple) and any(isinstance(two, AsyncResult) for two in handle) for handle in values
    ):
        raise NoRetry("lists of sub-results within a list: return one flat list of them")
    if not any(isinstance(handle, AsyncResult | ResultSet | Submission) for handle in values):
        return None
    if not all(handle is None or isinstance(handle, AsyncResult | ResultSet | Submission) for handle in values):
        raise NoRetry("a list of sub-results may hold results, submissions and None, nothing else")
    flat = list(flattened(values))
    for handle in flat:
        if isinstance(handle, AsyncResult) and (handle.ignored or type(handle.backend).__name__ == "DisabledBackend"):
            raise _mute(handle.id)
    return {"ids": [None if handle is None else handle.id for handle in flat], "one": isinstance(value, AsyncResult)}


def flattened(values: Sequence[object]) -> Iterator[AsyncResult | JobHandle | None]:
    """Flatten groups into their handles."""
    for handle in values:
        if isinstance(handle, GroupResult | ResultSet):
            yield from flattened(handle.results)
        elif isinstance(handle, Submission):
            yield JobHandle(handle.id) if handle.accepted else None
        else:
            yield handle if isinstance(handle, AsyncResult) else None


def _mute(task_id: str) -> NoRetry:
    return NoRetry(f"sub-result {task_id} stores no result: its end could not be waited for")


def check_stored(job: CurrentJob, ids: Sequence[str | None]) -> None:
    """Raise NoRetry if one of these tasks stores no result. The handles of a group, chain or chord do not show that;
    the messages that the job published did.
    """
    for task_id in ids:
        if task_id in job.mute:
            raise _mute(task_id)


def _mute_in(app: Celery, headers: Mapping[str, str], body: object) -> Iterator[str]:
    """The ids among all that a message starts, now or later, which store no result."""
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
    """The id of the job whose sub-task this is, else ''. Jobs, and tasks that they call in place, are no sub-tasks."""
    if working.get() is not None:
        return ""
    return str(getattr(task.request, CHILD, None) or "") if task.app is app else ""


@contextmanager
def _tolerant(parent: str) -> Iterator[None]:
    """Log errors of Redis only, so that a sub-task goes on without it."""
    try:
        yield
    except CoordinatorError as error:
        logger.info("could not tell job %s of a sub-task; it looks itself: %s", parent, error)


class WorkerPlace(Protocol):
    """The part of a runner's `Place` that sub-tasks use."""

    @property
    def node(self) -> str: ...

    @property
    def lanes(self) -> LaneClient: ...

    @property
    def incarnation(self) -> str: ...


def _begins(task: Task, app: Celery, place: Callable[[], WorkerPlace]) -> bool:
    """Note in Redis where a sub-task runs. Returns False if its parent's attempt ended without it."""
    parent = _parent_of(task, app)
    if not parent or not (here := place()).incarnation:
        return True
    request, verdict = task.request, 0
    with _tolerant(parent):
        fence = getattr(request, ATTEMPT, 0)
        verdict = int(here.lanes.store.step("child_began", parent, request.id, fence, here.node, here.incarnation))
    if verdict < 0:
        logger.warning("sub-task %s has come again, and does not run: job %s went on", request.id, parent)
    return verdict >= 0


def track_subtasks(app: Celery, place: Callable[[], WorkerPlace]) -> None:
    """Mark what a job publishes with its id and attempt, and note in Redis when a worker begins and ends such a
    sub-task. A sub-task whose parent's attempt ended without it does not begin.

    `place` returns the place of the worker that this process belongs to.
    """

    def mark(sender: str, headers: object = None, body: object = None, **_: object) -> None:
        """Mark a message of a job, and of a sub-task: the rest of its chain, the body of its chord."""
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
                place().lanes.store.step("child_ended", parent, task.request.id)

    watch_waits(waiting_for)
    signals.before_task_publish.connect(mark, weak=False, dispatch_uid=f"coordinator-mark-{id(app)}")
    check_first(app, lambda task: _begins(task, app, place))
    signals.task_postrun.connect(ended, weak=False, dispatch_uid=f"coordinator-told-{id(app)}")
