"""Sub-results: a job that returns handles of other tasks is parked, holding its lane and no worker, until all ended.

Handles are ids. The backend has the state of a task, the record that of a job.
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

from coordinator.broker.doorbells import TASK
from coordinator.errors import CoordinatorError, NoRetry
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, working
from coordinator.jobs.spec import CHILD, Handles
from coordinator.jobs.submission import Submission
from coordinator.lanes.lanes import Lanes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The handle of a job, which needs no result backend."""

    id: str


def handles_in(value: object) -> Handles | None:
    """{"ids": [id or None, …], "one": was it a single handle} of an AsyncResult, a GroupResult, a Submission or a list
    of them. A job that was skipped is None.

    None when there is no handle in it. Raises NoRetry for one that stores no result: nobody would hear its end.
    """
    if not isinstance(value, list | tuple | AsyncResult | ResultSet | Submission):
        return None
    found = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, list | tuple) and any(isinstance(two, AsyncResult) for two in one) for one in found):
        raise NoRetry("lists of sub-results within a list: return one flat list of them")
    if not any(isinstance(one, AsyncResult | ResultSet | Submission) for one in found):
        return None
    if not all(one is None or isinstance(one, AsyncResult | ResultSet | Submission) for one in found):
        raise NoRetry("a list of sub-results may hold results, submissions and None, nothing else")
    flat = list(flattened(found))
    for one in flat:
        if isinstance(one, AsyncResult) and (one.ignored or type(one.backend).__name__ == "DisabledBackend"):
            raise _mute(one.id)
    return {"ids": [None if one is None else one.id for one in flat], "one": isinstance(value, AsyncResult)}


def flattened(found: Sequence[object]) -> Iterator[AsyncResult | JobHandle | None]:
    """The handles of groups, laid flat."""
    for one in found:
        if isinstance(one, GroupResult | ResultSet):
            yield from flattened(one.results)
        elif isinstance(one, Submission):
            yield JobHandle(one.job_id) if one.accepted else None
        else:
            yield one if isinstance(one, AsyncResult) else None


def _mute(task_id: str) -> NoRetry:
    return NoRetry(f"sub-result {task_id} stores no result: its end could not be waited for")


def check_stored(job: CurrentJob, ids: Sequence[str | None]) -> None:
    """Handles of a group, chain or chord do not say what its tasks store: what the job published does."""
    for one in ids:
        if one in job.mute:
            raise _mute(one)


def _mute_in(app: Celery, headers: Mapping[str, str], body: object) -> Iterator[str]:
    """The ids of what a message starts, now or later, that store no result."""
    if headers.get("ignore_result"):
        yield headers["id"]
    embed = body[2] if isinstance(body, list | tuple) and len(body) == 3 else {}
    for part in (*(embed.get("chain") or ()), embed.get("chord")):
        for one in chain.inner(part):
            options = one.get("options") or {}
            said = options.get("ignore_result")
            if getattr(app.tasks.get(one["task"]), "ignore_result", False) if said is None else said:
                yield options.get("task_id", "")


def _parent_of(task: Task, app: Celery) -> str:
    """The job whose sub-task this is; '' where it is none. A job is none, nor is anything in it."""
    if working.get() is not None:
        return ""
    return str(getattr(task.request, CHILD, None) or "") if task.app is app else ""


@contextmanager
def _unsaid(parent: str) -> Iterator[None]:
    """A sub-task goes on where Redis does not answer."""
    try:
        yield
    except CoordinatorError as error:
        logger.info("could not tell job %s of a sub-task; it looks itself: %s", parent, error)


class Home(Protocol):
    """The part of a runner's place that sub-tasks need."""

    @property
    def node(self) -> str: ...

    @property
    def lanes(self) -> Lanes: ...

    @property
    def incarnation(self) -> str: ...


def tell_parents(app: Celery, place: Callable[[], Home]) -> None:
    """Mark what a job publishes with the job's id, and tell Redis when a worker begins it and has done it.

    `place`: of the worker that this process belongs to.
    """

    def mark(sender: str, headers: object = None, body: object = None, **_: object) -> None:
        """Mark also what a sub-task publishes: the rest of its chain, the body of its chord."""
        job = working.get()
        parent = job.id if job else current_task and getattr(current_task.request, CHILD, None)
        if parent and sender != TASK and isinstance(headers, dict):
            headers.setdefault(CHILD, parent)
            if job:
                job.mute.update(_mute_in(app, headers, body))

    def begins(task: Task, **_: object) -> None:
        """Note who has a message that is acknowledged. One that is not yet goes back to its queue by itself."""
        parent = _parent_of(task, app)
        here = place()
        if parent and not task.acks_late and here.incarnation:
            with _unsaid(parent):
                here.lanes.store.step("child_began", parent, task.request.id, here.node, here.incarnation)

    def told(task: Task, **_: object) -> None:
        if parent := _parent_of(task, app):
            with _unsaid(parent):
                place().lanes.store.step("child_ended", parent, task.request.id)

    signals.before_task_publish.connect(mark, weak=False, dispatch_uid=f"coordinator-mark-{id(app)}")
    signals.task_prerun.connect(begins, weak=False, dispatch_uid=f"coordinator-begins-{id(app)}")
    signals.task_postrun.connect(told, weak=False, dispatch_uid=f"coordinator-told-{id(app)}")
