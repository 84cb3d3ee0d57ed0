"""Runs one attempt at a job with Celery's own tracer, and returns its outcome.

The tracer sends the task's signals and calls its handlers (`on_success`, `on_failure`, …) as in any worker. It stores
no result, because of `ignore_result` in the request, and publishes nothing, because of `as_job`.
"""

from __future__ import annotations

import logging
import random
import time
import traceback
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from billiard.common import _should_have_exited
from celery import Celery, states
from celery.app import trace
from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate
from celery.result import AsyncResult, GroupResult
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps, loads

from coordinator.celery_patches.declared import rate_limit
from coordinator.celery_patches.quiet_task import Tracer
from coordinator.errors import Conflict, InvalidJob, NoRetry
from coordinator.jobs.backoff import delay_of
from coordinator.jobs.encoding import received
from coordinator.jobs.spec import TRACE, Again, ErrorRecord, Message, Signature, SignatureOptions, Spec
from coordinator.runner import subresults
from coordinator.runner.as_job import GoesOn, Replaced, adopt
from coordinator.runner.claim import Claim
from coordinator.runner.own_lane import out_of_lane
from coordinator.runner.results import is_ignored, rebuilt
from coordinator.runner.soft_limit import Call, call_without, soft_limit
from coordinator.runner.verdict import described
from coordinator.timed_out import TimedOut

logger = logging.getLogger(__name__)

_ASYNC = (
    "give it a base class whose __call__ does asyncio.run(self.run(…)), or start the worker with a pool for asyncio"
)


_HIDDEN = {"chain", "chord", "child_of", "priority"}


@dataclass(slots=True)  # not frozen, which is slower: each attempt creates one
class Outcome:
    """How an attempt ended; `detail` is JSON.

    `kind`: succeeded, ignored (it raised `Ignore`: it succeeded, nothing follows on it, and a result that it may have
    stored itself stays), parked (until the sub-results in `detail` end), replaced (by the steps in `detail`), raised
    (tried again while attempts are left; `most`: the task's own bound on them), conflict, or failed.
    `children`: what the body published. `retry`: the body raised `self.retry`.
    """

    kind: str
    detail: str
    value: object = None
    error: BaseException | None = None
    traceback: str = ""
    delay: float = 0.0
    runtime: float = 0.0
    most: int | None = None
    children: tuple[AsyncResult, ...] = ()
    retry: bool = False


class Tracers:
    """Celery's tracers, built once for each task. `eager`: the app calls its tasks eagerly."""

    def __init__(self, app: Celery, hostname: str, eager: bool = False) -> None:
        self._app = app
        self._hostname = hostname
        self._eager = eager
        self._tracers: dict[str, Tracer] = {}

    def attempt(self, claim: Claim, retry_delay: float) -> Outcome:
        """Run the claim's task now, and return its outcome, whatever the body raises. Raises only if the process or its
        worker ends during the body: then there is no outcome, and the clock puts the job back.
        """
        if put_off := self._put_off(claim):
            return put_off
        began, before = time.monotonic(), is_signalled()
        try:
            if "canvas" in claim.laid:
                return succeeded(claim, self._publish(claim), time.monotonic() - began, retry_delay)
            trace = self._tracer(claim.task)
            children: list[AsyncResult] = []
            with soft_limit(claim.laid.get("soft")) as call:
                request = self._request(claim, children, call)
                retval, info, _, _ = call(trace, claim.id, claim.args, claim.kwargs, request)
        except BaseException as error:  # an unknown task, an error of its handlers, or the body's own sys.exit
            if is_signalled() > before or _is_stopped(error):
                raise
            return failed(claim, error, time.monotonic() - began, retry_delay)
        if info is not None and is_signalled() > before:
            raise SystemExit("a signal ended this process during the body")  # which turned it into another error
        runtime = time.monotonic() - began
        if claim.time_limit and runtime > claim.time_limit:
            late = TimedOut(f"took {runtime:.1f} s; its time_limit is {claim.time_limit:g} s")
            return failed(claim, late, runtime, retry_delay)
        if isinstance(retval, Coroutine):
            retval.close()
            unread = NoRetry(f"{claim.task} is an async function, which this worker's Celery does not run: {_ASYNC}")
            return failed(claim, unread, runtime, retry_delay)
        if info is None:
            outcome = self._bounded(claim, succeeded(claim, retval, runtime, retry_delay), retry_delay)
            outcome.children = tuple(children)
            return outcome
        if isinstance(info.retval, Replaced):
            return Outcome("parked", dumps({"ids": [info.retval.handle.id], "one": True}), runtime=runtime)
        if isinstance(info.retval, GoesOn):
            return self._going_on(claim, info.retval.signature, runtime, retry_delay)
        if info.state == states.IGNORED:
            return Outcome("succeeded" if claim.undoing else "ignored", "null", runtime=runtime)
        return self._raised(claim, info.retval, runtime, retry_delay)

    def _put_off(self, claim: Claim) -> Outcome | None:
        """The outcome of a claim that comes before the countdown of the `self.retry` which made its step."""
        again = claim.laid.get("again")
        if again is None or claim.tries >= again["tries"]:
            return None
        error, detail = rebuilt(self._app, again["error"]), dumps(again["error"])
        return Outcome("raised", detail, None, error, "", again["delay"], most=again["most"], retry=True)

    def _raised(self, claim: Claim, error: BaseException, runtime: float, retry_delay: float) -> Outcome:
        """The outcome of an error. A `self.retry` by another call replaces the step, and that begins as a retry."""
        outcome = failed(claim, error, runtime, retry_delay)
        other = _other_call(claim, error) if isinstance(error, Retry) else None
        if other is None:
            return outcome
        wrong = "with other arguments, eagerly or in a rollback" if self._eager or claim.undoing else ""
        if wrong := wrong or self._out_of_lane(claim, other):
            return failed(claim, NoRetry(f"{claim.task}: self.retry: {wrong}"), runtime, retry_delay)
        cause: ErrorRecord = loads(outcome.detail)
        again: Again = {"tries": claim.tries + 1, "delay": outcome.delay, "most": outcome.most, "error": cause}
        return self._going_on(claim, other, runtime, retry_delay, again)

    def _out_of_lane(self, claim: Claim, other: Signature) -> str:
        options: SignatureOptions = {"headers": claim.laid.get("headers") or {}}
        now: Signature = {"task": claim.task, "args": claim.args, "kwargs": claim.kwargs, "options": options}
        return out_of_lane(self._app, claim.keys, now, other)

    def _going_on(
        self, claim: Claim, signature: Signature, runtime: float, retry_delay: float, again: Again | None = None
    ) -> Outcome:
        """The outcome of a task that these steps replace. They run where it may run, unless they say otherwise."""
        try:
            needs = claim.kind.split("\n")[2:]
            steps = self._app.coordinator._requests.in_place_of_a_step(signature, needs)
            if again:
                steps[0]["again"] = again
            detail = dumps([*steps, *claim.spec.get("rest", ())])
        except (InvalidJob, TypeError, ValueError) as error:
            how = "retry" if again else "replace"
            return failed(claim, NoRetry(f"{claim.task}: self.{how}: {error}"), runtime, retry_delay)
        if len(detail) > (most := self._app.coordinator.settings.max_payload):
            wrong = NoRetry(f"what replaces it has {len(detail)} bytes; at most {most} (setting max_payload)")
            return failed(claim, wrong, runtime, retry_delay)
        return Outcome("replaced", detail, runtime=runtime)

    def _bounded(self, claim: Claim, outcome: Outcome, retry_delay: float) -> Outcome:
        """Drop a result that nobody wants, and fail the job if its result is too long."""
        if outcome.kind != "succeeded":
            return outcome
        needed = claim.following is not None or (not claim.undoing and "link" in claim.spec)
        if not needed and (claim.undoing or is_ignored(self._app, claim.task, claim.spec)):
            outcome.detail = "null"
        size, most = len(outcome.detail), self._app.coordinator.settings.max_payload
        if size > most:
            error = NoRetry(f"its result has {size} bytes; at most {most} (setting max_payload)")
            return failed(claim, error, outcome.runtime, retry_delay)
        return outcome

    def _tracer(self, name: str) -> Tracer:
        if name not in self._tracers:
            task = self._app.tasks[name]
            if not self._eager:
                adopt(task)
            if limit := rate_limit(task):
                logger.warning("task %s has the rate limit %s, which its jobs do not keep", name, limit)
            # Looked up in the module each time, since SDKs replace `build_tracer` there.
            self._tracers[name] = trace.build_tracer(name, task, self._app.loader, self._hostname, app=self._app)
        return self._tracers[name]

    def _publish(self, claim: Claim) -> AsyncResult | GroupResult:
        """Publish a step that is a group or chord. Returns its handles: the step parks on them."""
        return self._app.signature(dict(claim.laid["canvas"])).apply_async(claim.args)

    def _request(self, claim: Claim, children: list[AsyncResult], call: Call) -> dict[str, object]:
        """The request for the tracer. The user's headers become fields of it, but override none of its own.

        Celery adds to `children` what the body publishes. Chain, chord and links are left out: they are published once
        Redis has accepted the outcome.
        """
        message: Message = {} if claim.undoing else claim.spec.get("message", {})
        headers = {**_trace_of(claim.spec), **(claim.laid.get("headers") or {})}
        return {
            **headers,
            "root_id": claim.id,
            "stamps": {},
            **{name: value for name, value in message.items() if name not in _HIDDEN},
            "id": claim.id,
            "task": claim.task,
            "lang": "py",
            "retries": message.get("retries", 0) + claim.tries,
            "_children": children,
            "is_eager": self._eager,
            "ignore_result": True,
            "hostname": self._hostname,
            "correlation_id": claim.id,
            "headers": headers,  # with None, Celery would look for them among all these
            "coordinator_shown": self._shown(claim, message),
            "coordinator_call": call,
            "shadow": claim.laid.get("shadow"),
            "timelimit": (claim.time_limit, claim.laid.get("soft")),
            "delivery_info": {
                "exchange": "",
                "routing_key": claim.queue,
                "priority": message.get("priority", 0),
                "redelivered": claim.losses > 0,
            },
        }

    def _shown(self, claim: Claim, message: Message) -> dict[str, object]:
        """The part of the request that only the body sees: for the tracer, it would say what to store and publish."""
        shown: dict[str, object] = {"headers": claim.laid.get("headers"), "ignore_result": False}
        shown["coordinator_call"] = call_without  # where the body calls itself, the soft limit goes on
        if not claim.undoing:
            spec = claim.spec
            shown["ignore_result"] = is_ignored(self._app, claim.task, spec)
            shown |= {"callbacks": spec.get("link"), "errbacks": spec.get("link_error")}
            shown |= {name: message[name] for name in ("chain", "chord") if name in message}
        return shown


def _trace_of(spec: Spec) -> dict[str, object]:
    """The headers that have each run of a job in the trace of its submit: of later steps and of a rollback, too."""
    headers = spec.get("headers") or {}
    return {name: headers[name] for name in TRACE if name in headers}


def is_signalled() -> bool:
    """True if a signal is ending this pool process: billiard's handler notes that, then raises SystemExit."""
    return bool(_should_have_exited[0])


def _is_stopped(error: BaseException) -> bool:
    """True if the error comes from the end of the worker: GreenletExit in bodies under gevent and eventlet, the
    worker's own errors in a solo pool.
    """
    return isinstance(error, WorkerShutdown | WorkerTerminate) or type(error).__name__ == "GreenletExit"


def succeeded(claim: Claim, value: object, runtime: float, retry_delay: float) -> Outcome:
    try:
        handles = subresults.handles_in(value)
        if handles:
            detail = dumps({**handles, "one": handles["one"] and "canvas" in claim.laid})
            return Outcome("parked", detail, value, runtime=runtime)
        return Outcome("succeeded", dumps(value), value, runtime=runtime)
    except (TypeError, ValueError) as error:
        return failed(claim, NoRetry(f"its result is not JSON: {error}"), runtime, retry_delay)
    except NoRetry as error:
        return failed(claim, error, runtime, retry_delay)


def failed(claim: Claim, error: BaseException, runtime: float, retry_delay: float) -> Outcome:
    again, cause = _retry(error)
    delay = delay_of(claim.spec, claim.tries, retry_delay) if again is None else again
    frames = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__, limit=-20))[-16384:]
    detail = described(cause, _text(cause))
    kind, most = "raised", None
    if isinstance(error, NoRetry):
        kind = "failed"
    elif _is_conflict(cause, claim.spec.get("retry_on", ())) or (isinstance(cause, Reject) and cause.requeue):
        kind, delay = "conflict", random.uniform(0, 0.05 * (2 ** min(claim.forgiven - claim.step, 4) - 1))
    elif isinstance(error, Retry) and "free" in claim.spec:
        most = 4 if error.sig is None else 2**31  # past the task's own bound, Celery raises the cause itself
    text, retry = dumps({**detail, "traceback": frames}), isinstance(error, Retry)
    return Outcome(kind, text, None, cause, frames, delay, runtime, most, retry=retry)


def _other_call(claim: Claim, retry: Retry) -> Signature | None:
    """The call that a `self.retry` names, where it has other arguments, limits or headers, or goes to another queue."""
    if retry.sig is None:
        return None
    laid, options = claim.laid, retry.sig.options
    now: dict[str, object] = {"queue": claim.queue, "time_limit": claim.time_limit, "soft_time_limit": laid.get("soft")}
    now["headers"] = laid.get("headers")
    retried = {name: options.get(name) or None for name in now}
    args, kwargs = list(retry.sig.args), dict(retry.sig.kwargs)
    if received([args, kwargs, retried]) == received([claim.args, claim.kwargs, now]):
        return None
    if "shadow" in laid:
        retried["shadow"] = laid["shadow"]
    return {"task": claim.task, "args": args, "kwargs": kwargs, "options": cast(SignatureOptions, retried)}


def _retry(error: BaseException) -> tuple[float | None, BaseException]:
    """The delay of a `self.retry`, None for any other error; and the cause."""
    if not isinstance(error, Retry):
        return None, error
    cause = error.exc if isinstance(error.exc, BaseException) else error
    if isinstance(error.when, datetime):
        when = error.when if error.when.tzinfo else error.when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds()), cause
    return float(error.when or 0), cause


def _is_conflict(error: BaseException, named: Sequence[str]) -> bool:
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, Conflict) or not kinds.isdisjoint(named)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:4096]
    except Exception:
        return str(safe_repr(error))[:4096]
