"""Stores the results of ended jobs in the result backend, and publishes their links to the broker.

Redis lists each ended job whose result and links are still to be sent, until a runner's outbox, or maintenance of any
node of the app, has sent them. So each result and link is sent at least once, even if a node dies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from celery import Celery, states
from celery.app.task import Context
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.result import AsyncResult

from coordinator.core.jobs.record import Job, callers
from coordinator.core.jobs.spec import ErrorRecord, Spec
from coordinator.core.runner.canvas import Caller, ended, go_on, has_results, raisable, request_of
from coordinator.core.runner.claim import Claim
from coordinator.core.store.client import Store

logger = logging.getLogger(__name__)

_FOLLOWING = ("link", "link_error", "chain", "chord")
_NO_REQUEST = Context(id="")  # for the stored fields of a plain success, which hold nothing of the request but its id
MOST_TRIES = 150  # tries to send the end of a job, over about a day: the same number as in functions/steps/job.lua


class JobEnd(NamedTuple):
    """How a job ended, with all that is to be sent. `error`, `trace`: its exception and traceback; None and "" if it
    succeeded.

    `coalesces`: True if other submits may have coalesced into the job, which get the same result; `asked_only`: only
    those that asked do, as of the calls that a job collected. `others`: the ids of those without links. `callers`: the
    skipped or coalesced calls of keyed tasks that have links or a place in a canvas. `children`: the tasks that the
    body published.
    """

    job: Job
    spec: Spec
    error: BaseException | None
    trace: str = ""
    coalesces: bool = False
    asked_only: bool = False
    others: tuple[str, ...] = ()
    callers: tuple[Caller, ...] = ()
    children: tuple[AsyncResult, ...] = ()


def is_ignored(app: Celery, task: str, spec: Spec) -> bool:
    """True if the result of a call is not to be stored: by the `ignore_result` of the call `spec`, or of its `task` if
    the call sets none.
    """
    ignored = spec.get("ignore_result")
    return bool(getattr(app.tasks.get(task), "ignore_result", False) if ignored is None else ignored)


def _is_kept(app: Celery, caller: Caller) -> bool:
    return has_results(app) and not is_ignored(app, caller.task, caller.spec)


def send(app: Celery, end: JobEnd) -> None:
    """Store the result of an ended job, publish its links and continue its chain or chord; do the same for each call
    that was skipped or coalesced into the job.
    """
    how, own = ended(end.job, end.error, end.trace), _own(end)
    kept = _is_kept(app, own)
    go_on(app, _request(end, own, kept, end.children), how, kept)
    for caller in end.callers:
        is_kept = _is_kept(app, caller)
        go_on(app, _request(end, caller, is_kept), how, is_kept, coalesced=True)
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
    """Store the `state` of a job that is not over (STARTED, RETRY) in the result backend; only log an error.

    Call this from the thread that runs the body, before or after the body: then it cannot overwrite a later state,
    stored by the body or at the end of the job.
    """
    own = Caller(claim.id, claim.task, claim.spec)
    try:
        request = request_of(claim.args, claim.kwargs, node, own, True)
        app.backend.store_result(claim.id, result, state, traceback=trace, request=request)
    except Exception as error:
        logger.warning("job %s: cannot store the state %s in the result backend: %s", claim.id, state, error)


def send_many(app: Celery, ends: Iterable[JobEnd]) -> set[str]:
    """Send the results and links of many ended jobs. Returns the ids of those whose results and links are sent; an
    error of any other is logged.

    With Celery's own Redis backends, all results that have no links go in one pipeline. Unlike `send`, the pipeline
    does not read first whether a result is already stored: there is none, since Redis accepts one outcome for each job.
    """
    sent = set[str]()
    portion = _Portion(app.backend) if type(app.backend) in (RedisBackend, SentinelBackend) else None
    for end in ends:
        try:
            if portion and not (end.callers or has_followers(end.spec)) and _is_kept(app, _own(end)):
                portion.add(end)
            else:
                send(app, end)
                sent.add(end.job.id)
        except Exception:
            logger.exception("job %s: cannot send its result and links yet", end.job.id)
    return sent | (portion.store() if portion else set())


def has_followers(spec: Spec) -> bool:
    """True if the end of the job `spec` publishes messages: links, the rest of a chain, the body of a chord."""
    return any(spec.get(name) or name in spec.get("message", ()) for name in _FOLLOWING)


class _Portion:
    """A pipeline of results for Celery's Redis backend, each in the form in which the backend stores it itself.

    `_usual`: the stored fields that all plain successes have in common; `_owners`: for each result in the pipeline, the
    id of the job from which it comes.
    """

    def __init__(self, backend: RedisBackend) -> None:
        self._backend = backend
        self._pipe = backend.client.pipeline(transaction=False)
        self._owners: list[str] = []
        self._extended = backend.app.conf.result_extended
        self._usual = backend._get_result_meta(None, states.SUCCESS, None, _NO_REQUEST)

    def add(self, end: JobEnd) -> None:
        """Add the result of a job to the pipeline, under the job's id and the id of each submit that coalesced into
        it. Encodes like KeyValueStoreBackend._store_result, and writes like RedisBackend._set.
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
        """Send the pipeline to Redis. Returns the ids of the jobs whose results are all stored; logs each error."""
        if not self._owners:
            return set()
        try:
            replies = self._pipe.execute(raise_on_error=False)
        except Exception as error:  # whatever the Redis client raises: the outbox or maintenance tries again
            logger.warning("cannot store %d results in the result backend yet: %s", len(self._owners), error)
            return set()
        left = set()
        for job_id, stored in zip(self._owners, replies[::2], strict=True):
            if isinstance(stored, Exception):
                logger.warning("job %s: cannot store its result in the result backend yet: %s", job_id, stored)
                left.add(job_id)
        return {*self._owners} - left


def coalesced_into(store: Store, end: JobEnd) -> JobEnd:
    """Read from Redis which submits and calls coalesced into an ended job, and return its `end` with them. The list is
    complete, since nothing coalesces into a job that is over.
    """
    ids = [raw.decode() for raw in store.read("LRANGE", store.key("aliases", end.job.id), 0, -1)]
    known = [Caller(*fields) for fields in callers(store, ids)]
    others = () if end.asked_only else tuple(caller.id for caller in known if not caller.task)
    return end._replace(others=others, callers=tuple(caller for caller in known if caller.task))


def recorded_error(app: Celery, job: Job) -> BaseException | None:
    """Rebuild the exception of a failed job from its record; None if the record has no error."""
    return None if job.error is None else raisable(rebuilt(app, job.error), job)


def rebuilt(app: Celery, error: ErrorRecord) -> BaseException:
    """Rebuild an exception from the form in which records store it, as Celery's backends do from a stored result. A
    RuntimeError with the same text, if the exception's class cannot be imported or built.
    """
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
