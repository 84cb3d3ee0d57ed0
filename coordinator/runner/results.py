"""Sends what follows an outcome that Redis accepted: the result to the backend, the links to the broker.

Redis notes each job whose result and links are not sent yet, until a runner's outbox or the errands of any node of the
app have sent them. So each is sent at least once, also if a node dies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from celery import Celery, states
from celery.app.task import Context
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.result import AsyncResult

from coordinator.jobs.record import Job, callers
from coordinator.jobs.spec import ErrorRecord, Spec
from coordinator.runner.canvas import Caller, ended, go_on, has_results, raisable, request_of
from coordinator.runner.claim import Claim
from coordinator.store.client import Store

logger = logging.getLogger(__name__)

_FOLLOWING = ("link", "link_error", "chain", "chord")
_NO_REQUEST = Context(id="")  # usual results hold nothing of their task
MOST_TRIES = 150  # in about a day: functions/steps/job.lua


class JobEnd(NamedTuple):
    """How a job ended; `error` unless it succeeded. `coalesces`: submits may have coalesced into it.

    `others`: the ids of these submits. `callers`: the skipped or coalesced calls of keyed tasks that also have links or
    a place in a canvas. `children`: what the body published.
    """

    job: Job
    spec: Spec
    error: BaseException | None
    trace: str = ""
    coalesces: bool = False
    others: tuple[str, ...] = ()
    callers: tuple[Caller, ...] = ()
    children: tuple[AsyncResult, ...] = ()


def is_ignored(app: Celery, task: str, spec: Spec) -> bool:
    """True if the call ignores its result or, where it says nothing, its task."""
    ignored = spec.get("ignore_result")
    return bool(getattr(app.tasks.get(task), "ignore_result", False) if ignored is None else ignored)


def _is_kept(app: Celery, caller: Caller) -> bool:
    return has_results(app) and not is_ignored(app, caller.task, caller.spec)


def send(app: Celery, end: JobEnd) -> None:
    """Store the result, publish the links and continue the canvas, of a job that is over and of the calls behind it."""
    how, own = ended(end.job, end.error, end.trace), _own(end)
    kept = _is_kept(app, own)
    go_on(app, _request(end, own, kept, end.children), how, kept)
    for caller in end.callers:
        is_kept = _is_kept(app, caller)
        go_on(app, _request(end, caller, is_kept), how, is_kept, turned_away=True)
    if kept:
        request = _request(end, own, kept)
        for other in end.others:
            app.backend.store_result(other, how.result, how.state, how.trace, request=request)


def _request(end: JobEnd, caller: Caller, kept: bool, children: Sequence[AsyncResult] = ()) -> Context:
    job, tries = end.job, max(0, end.job.attempt - end.job.losses - 1)
    return request_of(job.args, job.kwargs, job.node, caller, kept, children, job.fence, tries)


def _own(end: JobEnd) -> Caller:
    return Caller(end.job.id, end.job.task, end.spec)


def store_state(app: Celery, claim: Claim, node: str, state: str, result: object, trace: str | None = None) -> None:
    """Store a state of a job that goes on. The thread of the body calls it, before or after the body, so that it never
    overwrites what the body or the end stores.
    """
    own = Caller(claim.id, claim.task, claim.spec)
    try:
        request = request_of(claim.args, claim.kwargs, node, own, True)
        app.backend.store_result(claim.id, result, state, traceback=trace, request=request)
    except Exception as error:
        logger.warning("job %s: its %s is not stored: %s", claim.id, state, error)


def send_many(app: Celery, ends: Iterable[JobEnd]) -> set[str]:
    """Send each end. Returns the ids of the jobs for which that worked; logs the others.

    With Celery's own Redis backends, plain results go in one round trip. Unlike `send`, that does not ask whether there
    is a result already: Redis accepted only this outcome.
    """
    sent = set[str]()
    portion = _Portion(app.backend) if type(app.backend) in (RedisBackend, SentinelBackend) else None
    for end in ends:
        try:
            if portion and not (end.callers or goes_on(end.spec)) and _is_kept(app, _own(end)):
                portion.add(end)
            else:
                send(app, end)
                sent.add(end.job.id)
        except Exception:
            logger.exception("job %s: its end is not sent yet", end.job.id)
    return sent | (portion.store() if portion else set())


def goes_on(spec: Spec) -> bool:
    """True if the end of the job publishes something: links, the rest of a chain, a chord."""
    return any(spec.get(name) or name in spec.get("message", ()) for name in _FOLLOWING)


class _Portion:
    """Results that go to Celery's Redis backend in one round trip, each as that stores it itself.

    `_usual`: what all successes share that say no more of their task; `_owners`: the job of each result.
    """

    def __init__(self, backend: RedisBackend) -> None:
        self._backend = backend
        self._pipe = backend.client.pipeline(transaction=False)
        self._owners: list[str] = []
        self._extended = backend.app.conf.result_extended
        self._usual = backend._get_result_meta(None, states.SUCCESS, None, _NO_REQUEST)

    def add(self, end: JobEnd) -> None:
        """Encode the result as KeyValueStoreBackend._store_result does, under each id that shares it, for a write as
        that of RedisBackend._set.
        """
        backend, expires = self._backend, self._backend.expires
        state, result, trace = ended(end.job, end.error, end.trace)
        meta = self._usual | {"result": backend.encode_result(result, state)}
        if state != states.SUCCESS or self._extended or end.children or "message" in end.spec:
            request = _request(end, _own(end), True, end.children)
            meta = backend._get_result_meta(meta["result"], state, trace, request)
        if state == states.FAILURE:
            expires = getattr(backend, "failure_expires", expires)
        for job_id in (end.job.id, *end.others):
            key, text = backend.get_key_for_task(job_id), backend.encode(meta | {"task_id": job_id})
            self._pipe.set(key, text, ex=int(expires or 0) or None)
            self._pipe.publish(key, text)
            self._owners.append(end.job.id)

    def store(self) -> set[str]:
        """Returns the ids of the jobs whose results are all stored."""
        if not self._owners:
            return set()
        try:
            replies = self._pipe.execute(raise_on_error=False)
        except Exception as error:  # all that redis and the network raise
            logger.warning("%d results are not stored yet: %s", len(self._owners), error)
            return set()
        left = set()
        for job_id, stored in zip(self._owners, replies[::2], strict=True):
            if isinstance(stored, Exception):
                logger.warning("job %s: its result is not stored yet: %s", job_id, stored)
                left.add(job_id)
        return {*self._owners} - left


def coalesced_into(store: Store, end: JobEnd) -> JobEnd:
    """Add the submits that coalesced into a job, and the calls behind it. Once a job is over, no others can come."""
    ids = [raw.decode() for raw in store.read("LRANGE", store.key("aliases", end.job.id), 0, -1)]
    known = [Caller(*fields) for fields in callers(store, ids)]
    others = tuple(caller.id for caller in known if not caller.task)
    return end._replace(others=others, callers=tuple(caller for caller in known if caller.task))


def recorded_error(app: Celery, job: Job) -> BaseException | None:
    """Rebuild the exception of a record."""
    return None if job.error is None else raisable(rebuilt(app, job.error), job)


def rebuilt(app: Celery, error: ErrorRecord) -> BaseException:
    """Rebuild an exception, as Celery's backends do from a stored result."""
    kept = {
        "exc_type": error.get("type", "Exception"),
        "exc_module": error.get("module"),
        "exc_message": error.get("args") or [error.get("message")],
    }
    try:
        exception: BaseException | None = app.backend.exception_to_python(kept)
    except Exception:
        exception = None
    if not isinstance(exception, BaseException):
        exception = RuntimeError(str(error.get("message")))
    if error.get("type") == "SubResultFailed":
        parts = [part["error"] for part in error.get("parts", ()) if "error" in part]
        exception.__cause__ = rebuilt(app, parts[0]) if parts else None
    return exception
