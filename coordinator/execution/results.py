"""Once Redis has accepted a job's outcome, others hear of it: its result goes to the backend, its links are published.

Redis notes each job whose result and links are owed until a runner's outbox or the errands of a node have sent them.
Another node of the app sends those of a dead one. So each is sent at least once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from celery import Celery, states
from celery.app.task import Context
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.result import AsyncResult

from coordinator.execution.canvas import Caller, Ended, ended, go_on, has_results, request_of
from coordinator.jobs.record import Job, callers
from coordinator.jobs.spec import Spec
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Store

logger = logging.getLogger(__name__)

_FOLLOWING = ("link", "link_error", "chain", "chord")
_NOBODY = Context(id="")  # a usual result says nothing of its task
MOST_TRIES = 40  # in about 6 hours: functions/steps/job.lua


class JobEnd(NamedTuple):
    """How a job ended; `error` where it did not succeed. `melts`: submits may have melted into it.

    `others`: their ids, which their callers may wait for. `callers`: calls of keyed tasks that have more than a result
    to wait for, and were skipped or melted. `children`: what the body published.
    """

    job: Job
    spec: Spec
    error: BaseException | None
    trace: str = ""
    melts: bool = False
    others: tuple[str, ...] = ()
    callers: tuple[Caller, ...] = ()
    children: tuple[AsyncResult, ...] = ()


class Packed(NamedTuple):
    """A result as Celery's Redis backend keeps it, and for how many seconds (0: for ever)."""

    key: str
    value: str | bytes
    expires: int


def is_ignored(app: Celery, task: str, spec: Spec) -> bool:
    """Does nobody want the result of a job that ends with this task?"""
    known = app.tasks.get(task)
    return bool(spec.get("ignore_result") or (known is not None and known.ignore_result))


def _is_kept(app: Celery, end: JobEnd) -> bool:
    return has_results(app) and not is_ignored(app, end.job.task, end.spec)


def send(app: Celery, end: JobEnd) -> None:
    """Store the result, publish the links and go on with the canvas: of a job that is over, and of calls that wait."""
    how, kept = ended(end.job, end.error, end.trace), _is_kept(app, end)
    for caller in (_own(end), *end.callers):
        is_kept = has_results(app) and not is_ignored(app, caller.task, caller.spec)
        own = caller.id == end.job.id
        go_on(app, _request(end, caller, is_kept, end.children if own else ()), how, is_kept, turned_away=not own)
    if kept:
        request = _request(end, _own(end), kept)
        for other in end.others:
            app.backend.store_result(other, how.result, how.state, how.trace, request=request)


def _request(end: JobEnd, caller: Caller, kept: bool, children: Sequence[AsyncResult] = ()) -> Context:
    return request_of(end.job.args, end.job.kwargs, end.job.node, caller, kept, children, end.job.fence)


def _own(end: JobEnd) -> Caller:
    return Caller(end.job.id, end.job.task, end.spec)


def is_tracked(app: Celery, task: str) -> bool:
    """Does `task_track_started` hold for this task, and is its result kept?"""
    known = app.tasks.get(task)
    return bool(known is not None and known.track_started and has_results(app) and not known.ignore_result)


def tell_begun(app: Celery, job_id: str, task: str, hostname: str) -> None:
    """Store STARTED, unless something was stored since: by the task itself, or of its end."""
    try:
        if app.backend.get_state(job_id) in (states.PENDING, states.RECEIVED, states.RETRY):
            request = Context(id=job_id, task=task, hostname=hostname, root_id=job_id, delivery_info={})
            app.backend.store_result(
                job_id, {"hostname": hostname, "pid": os.getpid()}, states.STARTED, request=request
            )
    except Exception as error:
        logger.warning("job %s: that it began is not told: %s", job_id, error)


def send_many(app: Celery, ends: Iterable[JobEnd]) -> set[str]:
    """As `send` for each. Returns the ids of those for whom it worked; the others are logged.

    Celery's own Redis backends are given plain results together, in one round trip. `send` asks them for each result
    whether there is one already; Redis has accepted this one outcome, so there is nothing to ask.
    """
    told, results = set(), []
    together = type(app.backend) in (RedisBackend, SentinelBackend)
    for end in ends:
        try:
            if together and not (end.callers or goes_on(end.spec)) and _is_kept(app, end):
                results += [(end.job.id, _packed(app.backend, end, one)) for one in (end.job.id, *end.others)]
            else:
                send(app, end)
                told.add(end.job.id)
        except Exception:
            logger.exception("job %s: its end is not told yet", end.job.id)
    return told | (_store(app.backend, results) if results else set())


def goes_on(spec: Spec) -> bool:
    """Is there more to do at its end than to store its result?"""
    return any(spec.get(name) or name in spec.get("message", ()) for name in _FOLLOWING)


def _packed(backend: RedisBackend, end: JobEnd, job_id: str) -> Packed:
    request = _request(end, _own(end), True, end.children) if says_more(backend, end.spec, end.children) else None
    return packed(backend, ended(end.job, end.error, end.trace), request, job_id)


def says_more(backend: RedisBackend, spec: Spec, children: Sequence[AsyncResult]) -> bool:
    """Does the result tell of its task, too?"""
    return bool(backend.app.conf.result_extended or children or "message" in spec)


def packed(backend: RedisBackend, how: Ended, request: Context | None, job_id: str) -> Packed:
    """As KeyValueStoreBackend._store_result makes it, under this id."""
    state, result, trace = how
    meta = backend._get_result_meta(backend.encode_result(result, state), state, trace, request or _NOBODY)
    expires = getattr(backend, "failure_expires", backend.expires) if state == states.FAILURE else backend.expires
    return Packed(backend.get_key_for_task(job_id), backend.encode(meta | {"task_id": job_id}), int(expires or 0))


def _store(backend: RedisBackend, results: list[tuple[str, Packed]]) -> set[str]:
    """As RedisBackend._set does it, for all at once. Each with the id of its job; the ids of those that are stored."""
    pipe = backend.client.pipeline(transaction=False)
    for _, one in results:
        pipe.set(one.key, one.value, ex=one.expires or None)
        pipe.publish(one.key, one.value)
    try:
        replies = pipe.execute(raise_on_error=False)
    except Exception as error:  # all that redis and the network raise
        logger.warning("%d results are not stored yet: %s", len(results), error)
        return set()
    left = set()
    for (job_id, _), stored in zip(results, replies[::2], strict=True):
        if isinstance(stored, Exception):
            logger.warning("job %s: its result is not stored yet: %s", job_id, stored)
            left.add(job_id)
    return {job_id for job_id, _ in results} - left


def melted_into(store: Store, end: JobEnd) -> JobEnd:
    """With the ids of the submits that melted into a job, and the calls that it stands for. None comes any more once it
    is over.
    """
    ids = [found.decode() for found in store.read("LRANGE", store.key("aliases", end.job.id), 0, -1)]
    known = [Caller(*found) for found in callers(store, ids)]
    others = tuple(one.id for one in known if not one.task)
    return end._replace(others=others, callers=tuple(one for one in known if one.task))


class Results:
    """Sends the results and links that no runner of this app has sent: it died, or the job ended without one."""

    def __init__(self, store: Store, lanes: Lanes, app: Celery) -> None:
        self.store = store
        self.lanes = lanes
        self.app = app

    def step(self, get_on: Callable[[], None] = lambda: None) -> int:
        """Send what is overdue, one at a time, and call `get_on` before each. Returns for how many jobs."""
        sent = 0
        while found := self.store.step("notices_take", self.app.main, 1):
            job_id, tries = found[0][0].decode(), found[0][1]
            get_on()
            try:
                job = self.lanes.job(job_id)
                trace = (job.error or {}).get("traceback", "")
                end = JobEnd(job, self.lanes.spec(job_id), recorded_error(self.app, job), trace)
                send(self.app, melted_into(self.store, end))
            except Exception:
                if tries < MOST_TRIES:
                    logger.exception("could not tell the end of job %s (try %d); once more later", job_id, tries)
                    continue
                logger.exception("could not tell the end of job %s in %d tries: nobody tries again", job_id, tries)
            self.told([job_id])
            sent += 1
        return sent

    def told(self, job_ids: list[str]) -> None:
        self.store.step("notices_told", self.app.main, *job_ids)


def recorded_error(app: Celery, job: Job) -> BaseException | None:
    """The exception of a record, as Celery's backends make one from what they keep."""
    if job.error is None:
        return None
    error = job.error
    kept = {
        "exc_type": error.get("type", "Exception"),
        "exc_module": error.get("module"),
        "exc_message": [error.get("message")],
    }
    try:
        found = app.backend.exception_to_python(kept)
    except Exception:
        found = None
    return found if isinstance(found, BaseException) else RuntimeError(str(error.get("message")))
