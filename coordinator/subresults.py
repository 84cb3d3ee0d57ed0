"""Sub-results: a job that returns handles of other tasks is parked, holding its lane and no worker, until all ended.

Handles are ids. Of a task its state is in the backend; of a job, in its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from celery import Celery, current_task, signals
from celery.result import AsyncResult, GroupResult, ResultSet

from coordinator import orders
from coordinator.current import CurrentJob, working
from coordinator.doorbells import TASK
from coordinator.errors import CoordinatorError, NoRetry, WouldDeadlock
from coordinator.jobs import TERMINAL
from coordinator.lanes import Lanes

logger = logging.getLogger(__name__)

CHILD = "coordinator_parent"  # header of messages that a job publishes: whom to tell when they are done


def handles_in(value: Any) -> dict[str, Any] | None:
    """{"ids": [id or None, …], "one": was it a single handle} of an AsyncResult, a GroupResult or a list of them.

    None when there is no handle in it. Raises NoRetry for one that stores no result: nobody would hear its end.
    """
    if not isinstance(value, list | tuple | AsyncResult | ResultSet):
        return None
    found = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, list | tuple) and any(isinstance(two, AsyncResult) for two in one) for one in found):
        raise NoRetry("lists of sub-results within a list: return one flat list of them")
    if not any(isinstance(one, AsyncResult | ResultSet) for one in found):
        return None
    if not all(one is None or isinstance(one, AsyncResult | ResultSet) for one in found):
        raise NoRetry("a list of sub-results may hold results and None, nothing else")
    flat = list(flattened(found))
    for one in flat:
        if one is not None and (one.ignored or type(one.backend).__name__ == "DisabledBackend"):
            raise _mute(one.id)
    return {"ids": [one and one.id for one in flat], "one": isinstance(value, AsyncResult)}


def flattened(found: Sequence[Any]) -> Iterator[AsyncResult | None]:
    """Groups laid flat."""
    for one in found:
        if isinstance(one, GroupResult | ResultSet):
            yield from flattened(one.results)
        else:
            yield one


def _mute(task_id: str) -> NoRetry:
    return NoRetry(f"sub-result {task_id} stores no result: its end could not be waited for")


def check_stored(job: CurrentJob, ids: Sequence[str | None]) -> None:
    """Handles of a group, chain or chord do not say what its tasks store: what the job published does."""
    for one in ids:
        if one in job.mute:
            raise _mute(one)


def _mute_in(app: Celery, headers: Mapping[str, Any], body: Any) -> Iterator[str]:
    """The ids of what a message starts, now or later, that store no result."""
    if headers.get("ignore_result"):
        yield headers["id"]
    embed = body[2] if isinstance(body, list | tuple) and len(body) == 3 else {}
    for part in (*(embed.get("chain") or ()), embed.get("chord")):
        for one in orders.inner(part):
            options = one.get("options") or {}
            said = options.get("ignore_result")
            if getattr(app.tasks.get(one["task"]), "ignore_result", False) if said is None else said:
                yield options.get("task_id", "")


def check_deadlock(lanes: Lanes, keys: Sequence[str], ids: Sequence[str | None]) -> None:
    """Raises WouldDeadlock where a sub-result is a job that waits in a lane which its parent holds."""
    store, known = lanes.store, [one for one in ids if one]

    def ask() -> list[Any]:
        pipeline = store.client.pipeline(transaction=False)
        for one in known:
            pipeline.hmget(store.key("job", one), "alias", "state", "keys")
        return pipeline.execute()

    for one, found in zip(known, store.call(ask), strict=True):
        alias, state, text = ((part or b"").decode() for part in found)
        if alias:
            job = lanes.job(alias)
            state, text = job.state, "\n".join(job.keys)
        shared = set(text.split("\n")) & set(keys)
        if shared and state not in TERMINAL:
            raise WouldDeadlock(f"sub-result {one} waits in the lane {shared.pop()!r}, which this job holds")


def tell_parents(app: Celery, lanes: Callable[[], Lanes]) -> None:
    """Mark what a job publishes with the job's id, and tell the job's node when a worker has done it."""

    def mark(sender: str, headers: Any = None, body: Any = None, **_: Any) -> None:
        """Also what a sub-task publishes: the rest of its chain, the body of its chord."""
        job = working.get()
        parent = job.id if job else current_task and getattr(current_task.request, CHILD, None)
        if parent and sender != TASK and isinstance(headers, dict):
            headers.setdefault(CHILD, parent)
            if job:
                job.mute.update(_mute_in(app, headers, body))

    def told(task: Any, **_: Any) -> None:
        parent = getattr(task.request, CHILD, None)
        if not parent or task.app is not app:
            return
        try:
            lanes().store.run("child_ended", parent)
        except CoordinatorError as error:
            logger.info("could not tell job %s of the end of a sub-task; it looks itself: %s", parent, error)

    signals.before_task_publish.connect(mark, weak=False, dispatch_uid=f"coordinator-mark-{id(app)}")
    signals.task_postrun.connect(told, weak=False, dispatch_uid=f"coordinator-told-{id(app)}")
