"""The runner: what one doorbell starts. It takes ready jobs that its node may run, one after the other, for one slice.

    take ─► attempt ─► finish-and-take (one round trip) ─► tell result, links, events ─► attempt …

The outcome is asked for with the same tokens until Redis answers: a lost reply changes nothing. `lost`: somebody else
was given the job, nothing of ours counts. `condemned`: the warden is about to stop this process; it takes nothing more.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps, loads

from coordinator import orders, processes
from coordinator.attempt import Outcome, Tracers, failed
from coordinator.current import CurrentJob, Undoing, working
from coordinator.errors import NoRetry, StoreRefused, StoreUnavailable, WouldDeadlock
from coordinator.events import Events
from coordinator.jobs import TERMINAL, Job
from coordinator.lanes import Lanes
from coordinator.notices import log_double_fault, recorded_error, send
from coordinator.store import Store, milliseconds
from coordinator.subresults import check_deadlock, check_stored
from coordinator.work import Work, work_of

logger = logging.getLogger(__name__)

_LAST_WAIT = 2.0  # for the kill that is on its way: it must not hit whatever this process would do next


class Runner:
    """One slice on one node. `until` is compared with time.monotonic()."""

    def __init__(
        self, app: Celery, lanes: Lanes, node: str, incarnation: str, tracers: Tracers, events: Events
    ) -> None:
        self.app = app
        self.lanes = lanes
        self.store: Store = lanes.store
        self.node = node
        self.incarnation = incarnation
        self._random, self._numbers = uuid.uuid4().hex[:24], itertools.count()
        self.id = f"{processes.identity()}.{self._random[:12]}"
        self._tracers = tracers
        self._events = events
        self._ttl = milliseconds(self.store.settings.lock_ttl)
        self._told: list[str] = []
        self._alone = threading.current_thread() is threading.main_thread()

    def run(self, bell: str) -> int:
        """Work until the slice is over or nothing is ready; how many attempts were made."""
        token, count = self._token(), 0
        until = time.monotonic() + self.store.settings.slice
        given, events, rung = self._insist("runner_take", self.node, self.incarnation, self.id, bell, token, self._ttl)
        self._events.enabled = events == b"1"
        self.lanes.ring_all(rung)
        try:
            while given:
                work, count = work_of(given, token), count + 1
                outcome = self._attempt(work)
                token = self._token() if time.monotonic() < until else ""
                given = self._finish(work, outcome, token)
        except BaseException as error:
            self._abandon(error)
            raise
        self._events.flush()
        if self._told:
            self._insist("notices_told", self.app.main, *self._told)
        return count

    def _token(self) -> str:
        """Another for each taking, all of one length: 96 random bits, and a number."""
        return f"{self._random}{next(self._numbers):08x}"

    def _attempt(self, work: Work) -> Outcome:
        self._events.started(work)
        job = CurrentJob(work.id, work.keys, work.token, work.fence, work.attempt, self.lanes, undoing_of(work))
        mark = working.set(job)
        usual = self.store.settings.retry_delay
        try:
            outcome = self._tracers.attempt(work, usual)
        finally:
            working.reset(mark)
        if outcome.kind == "parked":
            ids = loads(outcome.detail)["ids"]
            try:
                check_stored(job, ids)
                self._patiently(lambda: check_deadlock(self.lanes, work.keys, ids))
            except (NoRetry, WouldDeadlock) as error:
                return replace(failed(work, error, outcome.runtime, usual), kind="failed")
        return outcome

    def _finish(self, work: Work, outcome: Outcome, token: str) -> Any:
        told, self._told = self._told, []
        kind: str = outcome.kind
        more: tuple[Any, Any, Any] = (outcome.most or "", "", "")
        if kind == "succeeded" and (step := work.following) is not None:
            kind, more = "step", orders.advance(step)
        args = (
            work.id,
            work.token,
            kind,
            outcome.detail,
            milliseconds(outcome.delay),
            *more,
            self.node,
            self.id,
            token,
        )
        rest = "" if token else "1"
        verdict, state, given, rung = self._insist("job_finish", *args, self._ttl, rest, self.app.main, *told)
        self.lanes.ring_all(rung)
        if verdict == b"accepted":
            self._tell(work, outcome, state.decode())
        else:
            logger.warning("job %s (%s): outcome refused, %s", work.id, work.keys[0], verdict.decode())
        if verdict == b"condemned":
            time.sleep(_LAST_WAIT)
        return given

    def _abandon(self, error: BaseException) -> None:
        """Give back what this runner holds: its process lives on, so nobody else would see that it is over."""
        mine = self.store.call(lambda: self.store.client.hget(self.store.key("work", self.node), self.id))
        if mine:
            token, _, job_id = mine.decode().split(" ", 2)
            why = dumps(f"its runner failed: {safe_repr(error)}")
            _, rung = self.store.run("job_lose", job_id, token, "lost", why, 0)
            self.lanes.ring_all(rung)

    def _tell(self, work: Work, outcome: Outcome, state: str) -> None:
        self._events.ended(work, outcome, state)
        if work.undoing and outcome.error is not None:
            log_double_fault(work.id, work.keys[0], work.error, loads(outcome.detail))
        if state not in TERMINAL or not work.tell:
            return
        try:
            job = _ended(work, outcome, state, self.node)
            error = recorded_error(self.app, job) if work.undoing else outcome.error
            send(self.app, job, work.spec, error, outcome.traceback)
            self._told.append(work.id)
        except Exception:
            logger.exception("job %s: its end is not told yet; the warden will", work.id)

    def _insist(self, script: str, *args: Any) -> Any:
        """Ask until Redis answers; the same tokens make it safe."""
        return self._patiently(lambda: self.store.run(script, *args, eager=self._alone))

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        pause = 0.05
        while True:
            try:
                return ask()
            except (StoreUnavailable, StoreRefused) as error:
                logger.warning("%s; asking again", error)
                time.sleep(pause)
                pause = min(1.0, pause * 2)


def undoing_of(work: Work) -> Undoing | None:
    """What it is told when it is a rollback."""
    if not work.undoing:
        return None
    step = orders.laid(work.spec, work.step)
    args = tuple(orders.arguments(work.spec, work.step, work.value))
    return Undoing(args, dict(step.get("kwargs", {})), work.error, work.value)


def _ended(work: Work, outcome: Outcome, state: str, node: str) -> Job:
    error = loads(outcome.detail) if outcome.error else None
    return Job(
        id=work.id, keys=work.keys, state=state, task=work.task, args=work.args, kwargs=work.kwargs,
        attempt=work.attempt, losses=work.losses, node=node, fence=work.fence, submitted=None, taken=None, started=None,
        ended=datetime.now(UTC), result=outcome.value, error=work.error if work.undoing else error, progress=None,
    )  # fmt: skip
