"""A doorbell starts a runner. It claims ready jobs that its node may run, one after the other, for one slice.

    claim ─► attempt ─► finish and claim (one round trip) ─► tell result, links, events ─► attempt …

The runner asks Redis with the same tokens until it answers, so a lost reply changes nothing. `lost`: somebody else was
given the job, and nothing of ours counts. `condemned`: the warden is about to kill this process, which claims no more.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from celery import Celery
from celery.app.task import Task
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps, loads

from coordinator.errors import NoRetry, StoreRefused, StoreUnavailable, WouldDeadlock
from coordinator.execution.attempt import Outcome, Tracers, failed
from coordinator.execution.claim import Claim, claim_of
from coordinator.execution.results import log_double_fault, recorded_error, send
from coordinator.execution.subresults import check_deadlock, check_stored
from coordinator.execution.task_events import TaskEvents
from coordinator.fleet import processes
from coordinator.fleet.doorbells import TASK
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, Undoing, working
from coordinator.jobs.record import TERMINAL, Job
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Arg, Store
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_TASK_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": False, "rate_limit": None,
}  # fmt: skip
T = TypeVar("T")
_LAST_WAIT = 2.0  # for the kill that is on its way: it must not hit whatever this process would do next


class Runner:
    """One slice on one node. `until` is compared with time.monotonic()."""

    def __init__(
        self, app: Celery, lanes: Lanes, node: str, incarnation: str, tracers: Tracers, events: TaskEvents
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
        given, events = self._insist("runner_take", self.node, self.incarnation, self.id, bell, token, self._ttl)
        self._events.enabled = events == b"1"
        try:
            while given:
                claim, count = claim_of(given, token), count + 1
                outcome = self._attempt(claim)
                token = self._token() if time.monotonic() < until else ""
                given = self._finish(claim, outcome, token)
        except BaseException as error:
            self._abandon(error)
            raise
        self._events.flush()
        if self._told:
            self._insist("notices_told", self.app.main, *self._told)
        return count

    def _token(self) -> str:
        """A new one for each claim, all of one length: 96 random bits, and a number."""
        return f"{self._random}{next(self._numbers):08x}"

    def _attempt(self, claim: Claim) -> Outcome:
        self._events.started(claim)
        job = CurrentJob(claim.id, claim.keys, claim.token, claim.fence, claim.attempt, self.lanes, undoing_of(claim))
        mark = working.set(job)
        usual = self.store.settings.retry_delay
        try:
            outcome = self._tracers.attempt(claim, usual)
        finally:
            working.reset(mark)
        if outcome.kind == "parked":
            ids = loads(outcome.detail)["ids"]
            try:
                check_stored(job, ids)
                self._patiently(lambda: check_deadlock(self.lanes, claim.keys, ids))
            except (NoRetry, WouldDeadlock) as error:
                return replace(failed(claim, error, outcome.runtime, usual), kind="failed")
        return outcome

    def _finish(self, claim: Claim, outcome: Outcome, token: str) -> Iterable[object] | None:
        told, self._told = self._told, []
        kind: str = outcome.kind
        following: tuple[Arg, Arg, Arg] = ("", "", "")
        if kind == "succeeded" and (step := claim.following) is not None:
            kind, following = "step", chain.advance(step)
        args = (
            claim.id,
            claim.token,
            kind,
            outcome.detail,
            milliseconds(outcome.delay),
            outcome.most or "",
            *following,
            self.node,
            self.id,
            token,
        )
        rest = "" if token else "1"
        given: Iterable[object] | None
        verdict, state, given = self._insist("job_finish", *args, self._ttl, rest, self.app.main, *told)
        if verdict == b"accepted":
            self._tell(claim, outcome, state.decode())
        else:
            logger.warning("job %s (%s): outcome refused, %s", claim.id, claim.keys[0], verdict.decode())
        if verdict == b"condemned":
            time.sleep(_LAST_WAIT)
        return given

    def _abandon(self, error: BaseException) -> None:
        """Give back the job that this runner holds. Its process lives on, so no warden would see it."""
        mine = self.store.read("HGET", self.store.key("work", self.node), self.id)
        if mine:
            token, _, job_id = mine.decode().split(" ", 2)
            why = dumps(f"its runner failed: {safe_repr(error)}")
            self.store.step("job_lose", job_id, token, "lost", why, 0)

    def _tell(self, claim: Claim, outcome: Outcome, state: str) -> None:
        self._events.ended(claim, outcome, state)
        if claim.undoing and outcome.error is not None:
            log_double_fault(claim.id, claim.keys[0], claim.error, loads(outcome.detail))
        if state not in TERMINAL or not claim.tell:
            return
        try:
            job = _ended(claim, outcome, state, self.node)
            error = recorded_error(self.app, job) if claim.undoing else outcome.error
            send(self.app, job, claim.spec, error, outcome.traceback)
            self._told.append(claim.id)
        except Exception:
            logger.exception("job %s: its end is not told yet; the warden will", claim.id)

    def _insist(self, step: str, *args: Arg) -> Any:
        """Ask until Redis answers; the same tokens make it safe."""
        return self._patiently(lambda: self.store.step(step, *args, eager=self._alone))

    def _patiently(self, ask: Callable[[], T]) -> T:
        pause = 0.05
        while True:
            try:
                return ask()
            except (StoreUnavailable, StoreRefused) as error:
                logger.warning("%s; asking again", error)
                time.sleep(pause)
                pause = min(1.0, pause * 2)


def install_runner(app: Celery, now: Callable[[], tuple[Lanes, str]]) -> None:
    """Make the task that a doorbell starts. `now`: the lanes, and the incarnation of this process's worker."""
    tools: dict[str, tuple[Tracers, TaskEvents]] = {}

    def run(task: Task, bell: str) -> int:
        node = task.request.hostname
        if node not in tools:
            tools[node] = (Tracers(app, node), TaskEvents(app, node))
        lanes, incarnation = now()
        return Runner(app, lanes, node, incarnation, *tools[node]).run(bell)

    app.task(run, name=TASK, **_TASK_OPTIONS)


def undoing_of(claim: Claim) -> Undoing | None:
    """The view that a rollback has of its job; None for any other claim."""
    if not claim.undoing:
        return None
    step = chain.laid(claim.spec, claim.step)
    args = tuple(chain.arguments(claim.spec, claim.step, claim.value))
    return Undoing(args, dict(step.get("kwargs", {})), claim.error, claim.value)


def _ended(claim: Claim, outcome: Outcome, state: str, node: str) -> Job:
    error = loads(outcome.detail) if outcome.error else None
    return Job(
        id=claim.id, keys=claim.keys, state=state, task=claim.task, args=claim.args, kwargs=claim.kwargs,
        attempt=claim.attempt, losses=claim.losses, node=node, fence=claim.fence,
        submitted=None, taken=None, started=None, ended=datetime.now(UTC),
        result=outcome.value, error=claim.error if claim.undoing else error, progress=None,
    )  # fmt: skip
