"""Sends what follows an outcome that Redis accepted: the result to the backend, the links to the broker.

Redis notes each job whose result and links are not sent yet, until a runner's outbox or the errands of any node of the
app have sent them. So each is sent at least once, also if a node dies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
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


class Packed(NamedTuple):
    """A result as Celery's Redis backend stores it; `expires`: in seconds, 0: never. `job_id`: the job that it is of,
    whose result may be stored under several keys.
    """

    job_id: str
    key: str
    value: str | bytes
    expires: int


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
    sent, results = set[str](), list[Packed]()
    together = type(app.backend) in (RedisBackend, SentinelBackend)
    for end in ends:
        try:
            if together and not (end.callers or goes_on(end.spec)) and _is_kept(app, _own(end)):
                results += [*_packed(app.backend, end)]
            else:
                send(app, end)
                sent.add(end.job.id)
        except Exception:
            logger.exception("job %s: its end is not sent yet", end.job.id)
    return sent | (_store(app.backend, results) if results else set())


def goes_on(spec: Spec) -> bool:
    """True if the end of the job publishes something: links, the rest of a chain, a chord."""
    return any(spec.get(name) or name in spec.get("message", ()) for name in _FOLLOWING)


def _packed(backend: RedisBackend, end: JobEnd) -> Iterator[Packed]:
    """Encode the result as KeyValueStoreBackend._store_result does, under each id that shares it."""
    state, result, trace = ended(end.job, end.error, end.trace)
    says_more = backend.app.conf.result_extended or end.children or "message" in end.spec
    request = _request(end, _own(end), True, end.children) if says_more else _NO_REQUEST
    meta = backend._get_result_meta(backend.encode_result(result, state), state, trace, request)
    expires = getattr(backend, "failure_expires", backend.expires) if state == states.FAILURE else backend.expires
    for job_id in (end.job.id, *end.others):
        text = backend.encode(meta | {"task_id": job_id})
        yield Packed(end.job.id, backend.get_key_for_task(job_id), text, int(expires or 0))


def _store(backend: RedisBackend, results: list[Packed]) -> set[str]:
    """Store all results in one round trip, each as RedisBackend._set does. Returns the ids of the jobs whose results
    are all stored.
    """
    pipe = backend.client.pipeline(transaction=False)
    for result in results:
        pipe.set(result.key, result.value, ex=result.expires or None)
        pipe.publish(result.key, result.value)
    try:
        replies = pipe.execute(raise_on_error=False)
    except Exception as error:  # all that redis and the network raise
        logger.warning("%d results are not stored yet: %s", len(results), error)
        return set()
    left = set()
    for result, stored in zip(results, replies[::2], strict=True):
        if isinstance(stored, Exception):
            logger.warning("job %s: its result is not stored yet: %s", result.job_id, stored)
            left.add(result.job_id)
    return {result.job_id for result in results} - left


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
