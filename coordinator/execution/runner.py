"""A doorbell starts a runner. It claims ready jobs that its node may run, one after the other, for one slice.

    claim ─► attempt ─► finish and claim (one round trip) ─► attempt …
    claim ─► attempt ─► finish ─► tell result and links ─► claim ─► attempt …        of a job that has some

The runner asks Redis with the same tokens until it answers, so a lost reply changes nothing. `lost`: somebody else was
given the job, and nothing of ours counts. `condemned`: the clock is about to kill this process, which ends itself.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from celery import Celery
from celery.app.task import Task
from kombu.utils.encoding import safe_repr
from kombu.utils.json import loads

from coordinator.broker.doorbells import TASK, BellQueue, Doorbells
from coordinator.errors import NoRetry, StoreRefused, StoreUnavailable
from coordinator.execution.attempt import Outcome, Tracers, failed
from coordinator.execution.claim import Claim, claim_of
from coordinator.execution.quiet_task import QuietTask
from coordinator.execution.results import recorded_error, send
from coordinator.execution.subresults import check_stored
from coordinator.execution.task_events import TaskEvents
from coordinator.fleet import processes
from coordinator.fleet.board import Board
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, Undoing, working
from coordinator.jobs.faults import log_double_fault
from coordinator.jobs.record import TERMINAL, Job
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.leases import would_deadlock
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.wire import Arg

logger = logging.getLogger(__name__)

_TASK_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": False, "rate_limit": None,
}  # fmt: skip
T = TypeVar("T")


class Place(NamedTuple):
    """The lanes and the doorbells, and the incarnation and the board of the worker that a process belongs to."""

    lanes: Lanes
    doorbells: Doorbells
    incarnation: str
    board: Board


class Runner:
    """One slice on one node. `until` is compared with time.monotonic()."""

    def __init__(self, app: Celery, place: Place, node: str, tracers: Tracers, events: TaskEvents) -> None:
        lanes, _, incarnation, board = place
        self.app = app
        self.lanes = lanes
        self.store: Store = lanes.store
        self.node = node
        self.incarnation = incarnation
        self._random, self._numbers = uuid.uuid4().hex[:24], itertools.count()
        self.id = f"{processes.identity()}.{self._random[:12]}"
        self._pen, self._times = board.pen(self.id), board.times
        self._tracers = tracers
        self._events = events
        self._ttl = milliseconds(self.store.settings.lock_ttl)
        self._told: list[str] = []
        self._alone = threading.current_thread() is threading.main_thread()

    def run(self, bell: str) -> int:
        """Work until the slice is over or nothing is ready; how many attempts were made.

        Where it raises, it says so on the board, and the clock puts back the job that it held.
        """
        try:
            count = self._work(bell)
        except BaseException as error:
            self._pen.fail(str(safe_repr(error)))
            raise
        self._pen.close()
        return count

    def _work(self, bell: str) -> int:
        until, count = time.monotonic() + self.store.settings.slice, 0
        token = self._token()
        given = self._take(bell, token)
        while given:
            claim, count = claim_of(given, token), count + 1
            outcome = self._attempt(claim)
            token = self._token() if time.monotonic() < until else ""
            given = self._finish(claim, outcome, token)
        self._events.flush()
        return count

    def _take(self, bell: str, token: str) -> Iterable[object] | None:
        """`bell`: the doorbell, and later the token of the claim before."""
        told, self._told = self._told, []
        args = (self.node, self.incarnation, self.id, bell, token, self._ttl, self.app.main, *told)
        given, events = self._insist("runner_take", *args)
        self._events.enabled = events == b"1"
        return given  # type: ignore[no-any-return]

    def _token(self) -> str:
        """A new one for each claim, all of one length: 96 random bits, and a number."""
        return f"{self._random}{next(self._numbers):08x}"

    def _attempt(self, claim: Claim) -> Outcome:
        self._events.started(claim)
        job = CurrentJob(
            claim.id, claim.keys, claim.token, claim.fence, claim.attempt, self.lanes, undoing_of(claim),
            ttl=self.store.settings.lock_ttl,
        )  # fmt: skip
        mark = working.set(job)
        usual = self.store.settings.retry_delay
        self._pen.begin(claim.token, claim.time_limit)
        try:
            outcome = self._tracers.attempt(claim, usual)
        finally:
            self._pen.end()
            working.reset(mark)
        if outcome.kind == "succeeded":
            self._times.note(claim.task, outcome.runtime)
        if outcome.kind == "parked":
            ids = loads(outcome.detail)["ids"]
            try:
                check_stored(job, ids)
            except NoRetry as error:
                return failed(claim, error, outcome.runtime, usual)
        return outcome

    def _finish(self, claim: Claim, outcome: Outcome, token: str) -> Iterable[object] | None:
        """Record how the attempt ended, and take the next job with this token, '' = none.

        Telling a result or a link may take long. A job that has some is told between its end and the next claim, and
        that before the next body: so nothing that can wait lies between a claim and its body.
        """
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
            "" if claim.tell else token,
        )
        rest = "over" if not token else "soon" if claim.tell else ""
        given: Iterable[object] | None
        verdict, state, given = self._insist("job_finish", *args, self._ttl, rest)
        if verdict == b"deadlock":
            error = would_deadlock(state.decode())
            return self._finish(claim, replace(failed(claim, error, outcome.runtime, 0.0), kind="failed"), token)
        if verdict == b"accepted":
            self._tell(claim, outcome, state.decode())
        else:
            logger.warning("job %s (%s): outcome refused, %s", claim.id, claim.keys[0], verdict.decode())
        if verdict == b"condemned":  # the clock kills this process now: it must not hit whatever would be next here
            os.kill(os.getpid(), signal.SIGKILL)
        if claim.tell and token:
            given = self._take(claim.token, token)
        elif self._told:
            self._insist("notices_told", self.app.main, *self._told)
        return given

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
            logger.exception("job %s: its end is not told yet; the errands will", claim.id)

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


def install_runner(app: Celery, place: Callable[[], Place]) -> None:
    """Make the task that a doorbell starts. `place`: of the process that runs it."""
    tools: dict[str, tuple[Tracers, TaskEvents]] = {}

    def run(task: Task, bell: str) -> int:
        node = task.request.hostname
        here = place()
        if node not in tools:
            tools[node] = (Tracers(app, node), TaskEvents(app, node))
            bells = BellQueue(here.doorbells)  # a broker that hangs holds up no job that was taken
            bells.start()
            here.lanes.store.ringer = bells.ring
        return Runner(app, here, node, *tools[node]).run(bell)

    app.task(run, name=TASK, base=QuietTask, **_TASK_OPTIONS)


def undoing_of(claim: Claim) -> Undoing | None:
    """The view that a rollback has of its job; None for any other claim."""
    if not claim.undoing:
        return None
    step = chain.laid(claim.spec, claim.step)
    args = tuple(chain.arguments(claim.spec, claim.step, claim.value))
    return Undoing(args, dict(step.get("kwargs", {})), claim.error, claim.value, claim.values)


def _ended(claim: Claim, outcome: Outcome, state: str, node: str) -> Job:
    error = loads(outcome.detail) if outcome.error else None
    return Job(
        id=claim.id, keys=claim.keys, state=state, task=claim.task, args=claim.args, kwargs=claim.kwargs,
        attempt=claim.attempt, losses=claim.losses, node=node, fence=claim.fence,
        submitted=None, taken=None, started=None, ended=datetime.now(UTC),
        result=outcome.value, error=claim.error if claim.undoing else error, progress=None,
    )  # fmt: skip
