"""Runs one attempt at a job with Celery's own tracer, and returns the outcome of the attempt.

The tracer sends the task's signals and calls the task's handlers (`on_success`, `on_failure`, …) as in any worker. The
tracer stores no result, since the request has `ignore_result`, and publishes no links or chain, since the request that
it sees has none (see `as_job.py`): the outbox does both later.
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

from coordinator.core.celery_patches.quiet_task import Tracer
from coordinator.core.events.wait import WaitFor
from coordinator.core.jobs.backoff import delay_of
from coordinator.core.jobs.encoding import received
from coordinator.core.jobs.spec import TRACE, Again, ErrorRecord, Message, Signature, SignatureOptions, Spec
from coordinator.core.runner import awaits, subresults
from coordinator.core.runner.as_job import Awaits, GoesOn, Replaced, adopt
from coordinator.core.runner.claim import Claim
from coordinator.core.runner.own_lane import out_of_lane
from coordinator.core.runner.results import is_ignored, rebuilt
from coordinator.core.runner.soft_limit import Call, call_without, soft_limit
from coordinator.core.runner.verdict import described
from coordinator.errors import Conflict, CoolDown, InvalidJob, NoRetry
from coordinator.timed_out import TimedOut

logger = logging.getLogger(__name__)

_ASYNC = "declare it as `async def` itself below @app.task, behind Coordinator(app)"
_HIDDEN = {"chain", "chord", "child_of", "priority"}  # fields of a message that the tracer's request must not have


@dataclass(slots=True)  # not frozen: a frozen instance takes longer to create, and each attempt creates one
class Outcome:
    """How an attempt ended.

    `kind`: succeeded; ignored (the task raised `Ignore`: the job succeeds without links, and a result that the task may
    have stored itself stays); parked (until the sub-results in `detail` end); replaced (by the steps in `detail`);
    awaits (parked until the event in `detail` is set); raised (retried while attempts are left; `most`: the task's own
    limit on them, None: the job's); conflict; cooled_down (`quota`: the one that is closed for `delay`, "": all quotas
    of the job); failed. `detail`: JSON of the result, sub-results, steps, wait or error. `delay`: seconds until a
    retry; `runtime`: seconds of the body. `children`: tasks that the body published. `retry`: True if the body called
    `self.retry`.
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
    quota: str = ""


class Tracers:
    """Runs attempts with Celery's tracers, which it builds once for each task. `hostname`: the worker's name in
    requests. `eager`: True if the app sets `task_always_eager`.
    """

    def __init__(self, app: Celery, hostname: str, eager: bool = False) -> None:
        self._app = app
        self._hostname = hostname
        self._eager = eager
        self._tracers: dict[str, Tracer] = {}

    def attempt(self, claim: Claim, retry_delay: float) -> Outcome:
        """Run the task of a claim; return the outcome, whatever error the task raises. `retry_delay`: seconds, if the
        job sets none. Raises only if the process or worker ends meanwhile: then the supervisor puts the job back.
        """
        if rescheduled := self._reschedule(claim):
            return rescheduled
        began, before = time.monotonic(), is_signalled()
        try:
            if "canvas" in claim.step_spec:
                return succeeded(claim, self._publish(claim), time.monotonic() - began, retry_delay)
            trace = self._tracer(claim.task)
            children: list[AsyncResult] = []
            with soft_limit(claim.step_spec.get("soft")) as call:
                request = self._request(claim, children, call)
                retval, info, _, _ = call(trace, claim.id, claim.args, claim.kwargs, request)
        except BaseException as error:  # an unknown task, an error in the task's handlers, or sys.exit() in the body
            if is_signalled() > before or _is_stopped(error):
                raise
            return failed(claim, error, time.monotonic() - began, retry_delay)
        if info is not None and is_signalled() > before:
            raise SystemExit("a signal ended this process during a task")  # the task caught the handler's SystemExit
        runtime = time.monotonic() - began
        if claim.time_limit and runtime > claim.time_limit:
            late = TimedOut(f"the task took {runtime:.1f} s; its time_limit is {claim.time_limit:g} s")
            return failed(claim, late, runtime, retry_delay)
        if isinstance(retval, Coroutine):
            return _unread(claim, retval, runtime, retry_delay)
        if isinstance(wait := info.retval if info else retval, WaitFor | Awaits):
            return self._awaits(claim, wait, runtime, retry_delay)
        if info is None:
            outcome = self._bounded(claim, succeeded(claim, retval, runtime, retry_delay), retry_delay)
            outcome.children = tuple(children)
            return outcome
        if isinstance(info.retval, Replaced):
            return Outcome("parked", dumps({"ids": [info.retval.handle.id], "one": True}), runtime=runtime)
        if isinstance(info.retval, GoesOn):
            return self._continue(claim, info.retval.signature, runtime, retry_delay)
        if info.state == states.IGNORED:
            return Outcome("succeeded" if claim.undoing else "ignored", "null", runtime=runtime)
        return self._raised(claim, info.retval, runtime, retry_delay)

    def _reschedule(self, claim: Claim) -> Outcome | None:
        """Return an outcome by which Redis delays a step that a `self.retry` with changed arguments has put in place of
        the job's own: it is claimed at once, and must first wait for its countdown. None for any other claim.
        """
        again = claim.step_spec.get("again")
        if again is None or claim.tries >= again["tries"]:
            return None
        error, detail = rebuilt(self._app, again["error"]), dumps(again["error"])
        return Outcome("raised", detail, None, error, "", again["delay"], most=again["most"], retry=True)

    def _raised(self, claim: Claim, error: BaseException, runtime: float, retry_delay: float) -> Outcome:
        """Return the outcome for an error that the task raised. For a `self.retry` with other arguments or options, the
        changed call replaces the step, and counts as a retry.
        """
        outcome = failed(claim, error, runtime, retry_delay)
        other = _other_call(claim, error) if isinstance(error, Retry) else None
        if other is None:
            return outcome
        wrong = "with other arguments, eagerly or in a rollback" if self._eager or claim.undoing else ""
        if wrong := wrong or self._out_of_lane(claim, other):
            return failed(claim, NoRetry(f"{claim.task}: self.retry: {wrong}"), runtime, retry_delay)
        cause: ErrorRecord = loads(outcome.detail)
        again: Again = {"tries": claim.tries + 1, "delay": outcome.delay, "most": outcome.most, "error": cause}
        return self._continue(claim, other, runtime, retry_delay, again)

    def _out_of_lane(self, claim: Claim, other: Signature) -> str:
        options: SignatureOptions = {"headers": claim.step_spec.get("headers") or {}}
        now: Signature = {"task": claim.task, "args": claim.args, "kwargs": claim.kwargs, "options": options}
        return out_of_lane(self._app, claim.keys, now, other)

    def _continue(
        self, claim: Claim, signature: Signature, runtime: float, retry_delay: float, again: Again | None = None
    ) -> Outcome:
        """Return the outcome that replaces the current step by the tasks of `signature`. They run on nodes with the
        same labels, unless the signature names others. `again`: the retry that the first of them continues; None for
        `self.replace`.
        """
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
            wrong = NoRetry(f"the new steps have {len(detail)} bytes; at most {most} (setting max_payload)")
            return failed(claim, wrong, runtime, retry_delay)
        return Outcome("replaced", detail, runtime=runtime)

    def _awaits(self, claim: Claim, wait: WaitFor | Awaits, runtime: float, retry_delay: float) -> Outcome:
        wait = wait.wait if isinstance(wait, Awaits) else wait
        try:
            return Outcome("awaits", awaits.detail_of(self._app, claim, wait), runtime=runtime)
        except (InvalidJob, NoRetry) as error:
            return failed(claim, NoRetry(f"{claim.task}: wait_for: {error}"), runtime, retry_delay)

    def _bounded(self, claim: Claim, outcome: Outcome, retry_delay: float) -> Outcome:
        """Drop the result of a succeeded attempt if no caller, link or next step reads it; return a failure instead if
        the result is longer than the setting `max_payload`.
        """
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
            # Take `build_tracer` from its module at each call: SDKs such as Sentry's may replace it there at any time.
            self._tracers[name] = trace.build_tracer(name, task, self._app.loader, self._hostname, app=self._app)
        return self._tracers[name]

    def _publish(self, claim: Claim) -> AsyncResult | GroupResult:
        """Publish the group or chord of a step, and return its handle: the job is parked until its tasks have ended."""
        return self._app.signature(dict(claim.step_spec["canvas"])).apply_async(claim.args)

    def _request(self, claim: Claim, children: list[AsyncResult], call: Call) -> dict[str, object]:
        """Build the request that Celery's tracer gets. The user's headers become fields of the request, but override
        none of Celery's own.

        `children`: an empty list, to which Celery adds each task that the body publishes. `call`: calls the body with
        its soft time limit. The chain, the chord and the links of the call are left out, so that the tracer does not
        publish them: the outbox does, once Redis has accepted the outcome.
        """
        message: Message = {} if claim.undoing else claim.spec.get("message", {})
        headers = {**_trace_of(claim.spec), **(claim.step_spec.get("headers") or {})}
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
            "headers": headers,  # never None: Celery would then take all fields of this dict for headers
            "coordinator_shown": self._shown(claim, message),
            "coordinator_call": call,
            "shadow": claim.step_spec.get("shadow"),
            "timelimit": (claim.time_limit, claim.step_spec.get("soft")),
            "delivery_info": {
                "exchange": "",
                "routing_key": claim.queue,
                "priority": message.get("priority", 0),
                "redelivered": claim.losses > 0,
            },
        }

    def _shown(self, claim: Claim, message: Message) -> dict[str, object]:
        """Return the fields of the request that only the body of the task sees: links, chain, chord, `ignore_result`.
        With them, the tracer would publish the links and store the result itself.
        """
        shown: dict[str, object] = {"headers": claim.step_spec.get("headers"), "ignore_result": False}
        shown["coordinator_call"] = call_without  # a task that calls itself begins no second soft time limit
        if not claim.undoing:
            spec = claim.spec
            shown["ignore_result"] = is_ignored(self._app, claim.task, spec)
            shown |= {"callbacks": spec.get("link"), "errbacks": spec.get("link_error")}
            shown |= {name: message[name] for name in ("chain", "chord") if name in message}
        return shown


def _trace_of(spec: Spec) -> dict[str, object]:
    """Return the tracing headers of the submit, by which each run of the job (its steps, its rollback) joins the trace
    of the process that submitted the job.
    """
    headers = spec.get("headers") or {}
    return {name: headers[name] for name in TRACE if name in headers}


def is_signalled() -> bool:
    """True if a signal is ending this pool process: billiard's signal handler sets a flag and then raises SystemExit,
    which the task may have caught.
    """
    return bool(_should_have_exited[0])


def _is_stopped(error: BaseException) -> bool:
    """True if the error means that the worker ends: GreenletExit in a pool of gevent or eventlet, WorkerShutdown or
    WorkerTerminate in a solo pool.
    """
    return isinstance(error, WorkerShutdown | WorkerTerminate) or type(error).__name__ == "GreenletExit"


def _unread(claim: Claim, value: Coroutine[object, object, object], runtime: float, retry_delay: float) -> Outcome:
    value.close()
    error = NoRetry(f"{claim.task} returned a coroutine, which nothing runs: {_ASYNC}")
    return failed(claim, error, runtime, retry_delay)


def succeeded(claim: Claim, value: object, runtime: float, retry_delay: float) -> Outcome:
    """Return the outcome for the return value of a task: parked for a value with sub-results, failed for a value that
    is not JSON, else succeeded.
    """
    try:
        handles = subresults.handles_in(value)
        if handles:
            detail = dumps({**handles, "one": handles["one"] and "canvas" in claim.step_spec})
            return Outcome("parked", detail, value, runtime=runtime)
        return Outcome("succeeded", dumps(value), value, runtime=runtime)
    except (TypeError, ValueError) as error:
        return failed(claim, NoRetry(f"its result is not JSON: {error}"), runtime, retry_delay)
    except NoRetry as error:
        return failed(claim, error, runtime, retry_delay)


def failed(claim: Claim, error: BaseException, runtime: float, retry_delay: float) -> Outcome:
    """Return the outcome for an error: `failed` for a NoRetry, `conflict` for a conflict, else `raised`. `runtime`:
    seconds that the body ran; `retry_delay`: seconds until a retry, if neither the error nor the job sets them.
    """
    again, cause = _retry(error)
    delay = delay_of(claim.spec, claim.tries, retry_delay) if again is None else again
    frames = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__, limit=-20))[-16384:]
    detail = described(cause, _text(cause))
    kind, most, quota = "raised", None, ""
    if isinstance(error, CoolDown):
        kind, delay, quota = "cooled_down", error.seconds, error.quota
    elif isinstance(error, NoRetry):
        kind = "failed"
    elif _is_conflict(cause, claim.spec.get("retry_on", ())) or (isinstance(cause, Reject) and cause.requeue):
        kind, delay = "conflict", random.uniform(0, 0.05 * (2 ** min(claim.forgiven - claim.step, 4) - 1))
    elif isinstance(error, Retry) and "free" in claim.spec:
        # No `sig`: the task raised Retry itself, and gets Celery's default of 3 retries. After `self.retry`, no limit
        # is needed: Celery checks `max_retries` itself, and beyond it raises the cause instead of Retry.
        most = 4 if error.sig is None else 2**31
    text, retry = dumps({**detail, "traceback": frames}), isinstance(error, Retry)
    return Outcome(kind, text, None, cause, frames, delay, runtime, most, retry=retry, quota=quota)


def _other_call(claim: Claim, retry: Retry) -> Signature | None:
    """Return the call of a `self.retry` if its arguments, time limits, headers or queue differ from those of the
    claim; None for a `self.retry` that only repeats the claim's call.
    """
    if retry.sig is None:
        return None
    step, options = claim.step_spec, retry.sig.options
    now: dict[str, object] = {"queue": claim.queue, "time_limit": claim.time_limit, "soft_time_limit": step.get("soft")}
    now["headers"] = step.get("headers")
    retried = {name: options.get(name) or None for name in now}
    args, kwargs = list(retry.sig.args), dict(retry.sig.kwargs)
    if received([args, kwargs, retried]) == received([claim.args, claim.kwargs, now]):
        return None
    if "shadow" in step:
        retried["shadow"] = step["shadow"]
    return {"task": claim.task, "args": args, "kwargs": kwargs, "options": cast(SignatureOptions, retried)}


def _retry(error: BaseException) -> tuple[float | None, BaseException]:
    """Return the delay of a `self.retry` in seconds, None for any other error; and the error that is to be recorded:
    the `exc` of the `self.retry`, or `error` itself.
    """
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
