"""One attempt at a job: its task run through Celery's own tracer, and what came of it.

The tracer sends the task's signals and calls its handlers (`on_success`, `on_failure`, …) as a worker does. It stores
nothing and publishes nothing: `ignore_result` and `is_eager` in the request see to it, the latter also that
`self.retry` and `autoretry_for` raise instead of sending a message.
"""

from __future__ import annotations

import random
import signal
import threading
import time
import traceback
from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery import Celery, states
from celery.app.trace import build_tracer
from celery.exceptions import Retry, SoftTimeLimitExceeded
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps, loads

from coordinator import subresults
from coordinator.errors import Conflict, NoRetry, TimedOut
from coordinator.lanes import Lanes
from coordinator.work import Work

LONGEST_DELAY = 300.0


@dataclass(slots=True)  # not frozen: one is made for each attempt
class Outcome:
    """How an attempt ended: succeeded, parked (on the sub-results that `detail` names), raised (again where attempts
    are left; `most`: their bound where the task has its own), conflict, or failed. `detail` is JSON.
    """

    kind: str
    detail: str
    value: Any = None
    error: BaseException | None = None
    traceback: str = ""
    delay: float = 0.0
    runtime: float = 0.0
    most: int | None = None


class Tracers:
    """Celery's tracer for each task, built once."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._tracers: dict[str, Any] = {}

    def attempt(self, work: Work, retry_delay: float) -> Outcome:
        """Run the work's task here and now. Only what must end the process passes through."""
        began = time.monotonic()
        try:
            if "canvas" in work.laid:
                return succeeded(work, self._publish(work), time.monotonic() - began, retry_delay)
            trace = self._tracer(work.task)
            with soft_limit(work.laid.get("soft")):
                retval, info, _, _ = trace(work.id, work.args, work.kwargs, self._request(work))
        except Exception as error:  # the task is unknown, or one of its handlers raised
            return failed(work, error, time.monotonic() - began, retry_delay)
        except (SystemExit, KeyboardInterrupt, CancelledError) as error:
            return failed(work, error, time.monotonic() - began, retry_delay)
        runtime = time.monotonic() - began
        if work.time_limit and runtime > work.time_limit:
            late = TimedOut(f"took {runtime:.1f} s; its time_limit is {work.time_limit:g} s")
            return failed(work, late, runtime, retry_delay)
        if info is None:
            return succeeded(work, retval, runtime, retry_delay)
        if info.state == states.IGNORED:
            return Outcome("succeeded", "null", runtime=runtime)
        return failed(work, _refused(work, info.retval), runtime, retry_delay)

    def _tracer(self, name: str) -> Any:
        if name not in self._tracers:
            task = self._app.tasks[name]
            self._tracers[name] = build_tracer(name, task, self._app.loader, self._hostname, app=self._app)
        return self._tracers[name]

    def _publish(self, work: Work) -> Any:
        """A group or chord as a step: its handles, on which the step parks."""
        return self._app.signature(dict(work.laid["canvas"])).apply_async(work.args)

    def _request(self, work: Work) -> dict[str, Any]:
        return {
            "id": work.id,
            "root_id": work.id,
            "task": work.task,
            "lang": "py",
            "retries": work.tries,
            "is_eager": True,
            "ignore_result": True,
            "hostname": self._hostname,
            "correlation_id": work.id,
            "headers": work.laid.get("headers") or {},  # with None, Celery would look for them among all these
            "shadow": work.laid.get("shadow"),
            "timelimit": (work.time_limit, work.laid.get("soft")),
            "delivery_info": {"exchange": "", "routing_key": work.queue, "priority": 0, "redelivered": work.losses > 0},
            **(work.laid.get("headers") or {}),
        }


def succeeded(work: Work, value: Any, runtime: float, retry_delay: float) -> Outcome:
    try:
        handles = subresults.handles_in(value)
        if handles and not work.undoing:
            detail = dumps(handles | {"one": handles["one"] and "canvas" in work.laid})
            return Outcome("parked", detail, value, runtime=runtime)
        return Outcome("succeeded", dumps(value), value, runtime=runtime)
    except (TypeError, ValueError) as error:
        return failed(work, NoRetry(f"its result is not JSON: {error}"), runtime, retry_delay)
    except NoRetry as error:
        return failed(work, error, runtime, retry_delay)


def failed(work: Work, error: BaseException, runtime: float, retry_delay: float) -> Outcome:
    again, cause = _retry(error)
    delay = delay_of(work.spec, work.tries, retry_delay) if again is None else again
    trace = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__, limit=-20))[-16384:]
    detail = {"type": type(cause).__name__, "module": type(cause).__module__, "message": _text(cause)}
    kind, most = "raised", None
    if isinstance(error, NoRetry):
        kind = "failed"
    elif _is_conflict(cause, work.spec.get("retry_on", ())):
        kind, delay = "conflict", random.uniform(0, 0.05 * 2 ** min(work.forgiven - work.step, 4))
    elif isinstance(error, Retry) and "free" in work.spec:
        most = 4 if error.sig is None else 2**31  # past the task's own bound, Celery raises the cause itself
    return Outcome(kind, dumps(detail | {"traceback": trace}), None, cause, trace, delay, runtime, most)


def _refused(work: Work, error: BaseException) -> BaseException:
    """A job is tried again with what it was submitted with."""
    sig = error.sig if isinstance(error, Retry) else None
    if sig is not None and (list(sig.args), dict(sig.kwargs)) != (list(work.args), dict(work.kwargs)):
        return NoRetry(f"{work.task}: self.retry with other arguments; a job keeps those it was submitted with")
    return error


def _retry(error: BaseException) -> tuple[float | None, BaseException]:
    """Of `self.retry`: when to try again, which it names itself, and what really went wrong."""
    if not isinstance(error, Retry):
        return None, error
    cause = error.exc if isinstance(error.exc, BaseException) else error
    if isinstance(error.when, datetime):
        when = error.when if error.when.tzinfo else error.when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds()), cause
    return float(error.when or 0), cause


def delay_of(spec: Mapping[str, Any], tries: int, usual: float) -> float:
    """Seconds until the next attempt, by the job's `retry_delay`, else doubling from `usual` with full jitter."""
    given = spec.get("retry_delay")
    if isinstance(given, list):
        return float(given[min(tries, len(given) - 1)])
    policy = given or {"first": usual, "cap": LONGEST_DELAY, "jitter": True}
    longest = min(policy["cap"], policy["first"] * 2 ** min(tries, 32))
    return random.uniform(0, longest) if policy["jitter"] else float(longest)


def delay_of_job(lanes: Lanes, job_id: str) -> float:
    """`delay_of` a job whose attempt was ended by somebody else than its runner."""
    names = ("spec", "attempt", "losses", "forgiven")
    found = lanes.store.call(lambda: lanes.store.client.hmget(lanes.store.key("job", job_id), *names))
    attempt, losses, forgiven = (int(part or 0) for part in found[1:])
    tries = max(0, attempt - losses - forgiven - 1)
    return delay_of(loads(found[0] or b"{}"), tries, lanes.store.settings.retry_delay)


def _is_conflict(error: BaseException, named: Sequence[str]) -> bool:
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, Conflict) or not kinds.isdisjoint(named)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:4096]
    except Exception:
        return str(safe_repr(error))[:4096]


@contextmanager
def soft_limit(limit: float | None) -> Iterator[None]:
    """SoftTimeLimitExceeded in the body after `limit` seconds, where it has the main thread (prefork, solo)."""
    if not limit or threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def strike(signum: int, frame: Any) -> None:
        if armed:
            raise SoftTimeLimitExceeded(limit)

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
