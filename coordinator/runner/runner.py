"""The runner: started by a wake-up, it claims ready jobs that its node may run, one after the other, for one slice.

    claim ─► attempt ─► finish and claim (one round trip) ─► attempt …
                          └─► result and links: into the outbox

The runner repeats a step with the same tokens until Redis answers, so that a lost reply changes nothing. The verdict
`lost` means that another runner has the job, and our outcome does not count; `condemned`, that the clock is about to
kill this process, which then ends itself.

A process in which a runner fails may be damaged: it has no descriptors left, say. In a pool of processes it ends, so
that the pool replaces it; in any other, the runner fails, and its node is woken again.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from celery import Celery, signals, states
from celery.app.task import Task
from kombu.utils.encoding import safe_repr
from kombu.utils.json import loads

from coordinator.celery_patches.quiet_task import QuietTask
from coordinator.errors import NoRetry, StoreRefused, StoreUnavailable, WouldDeadlock
from coordinator.fleet.board import Board
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, Undoing, working
from coordinator.jobs.record import TERMINAL, Job
from coordinator.jobs.request import TELL_COALESCED
from coordinator.jobs.states import State
from coordinator.lanes.client import LaneClient
from coordinator.locks.leases import would_deadlock
from coordinator.runner.as_job import in_one_process
from coordinator.runner.attempt import Outcome, Tracers, failed, is_signalled
from coordinator.runner.canvas import has_results
from coordinator.runner.claim import TASK, Claim, claim_of
from coordinator.runner.outbox import Outbox
from coordinator.runner.own_lane import check_lanes
from coordinator.runner.results import JobEnd, is_ignored, recorded_error, store_state
from coordinator.runner.subresults import check_stored
from coordinator.runner.task_events import TaskEvents
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.wire import Arg

logger = logging.getLogger(__name__)

_TASK_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": False, "rate_limit": None,
}  # fmt: skip
_LAST = 1.0  # seconds


class Place(NamedTuple):
    """The worker that a process belongs to: its node, incarnation and board; and the lanes.

    `node` is not the request's `hostname`, which is the machine's where Celery's fast tracing is off. `one_each`: a
    runner ends after one job, since the worker limits the tasks or the memory of its processes.
    """

    node: str
    lanes: LaneClient
    incarnation: str
    board: Board
    one_each: bool = False


class Tools:
    """What the runners of one process share."""

    def __init__(self, app: Celery, place: Place) -> None:
        self.tracers = Tracers(app, place.node)
        self.events = TaskEvents(app, place.node, place.board)
        self.outbox = Outbox(app, place.lanes.store)

    def flush(self) -> None:
        """Wait a moment for what is still to be sent, before the process ends."""
        self.outbox.flush(_LAST)
        self.events.flush(_LAST)


class Runner:
    """Runs jobs for one slice on one node."""

    def __init__(self, app: Celery, place: Place, tools: Tools) -> None:
        self.node, lanes, incarnation, board, self._one_each = place
        self.app = app
        self.lanes = lanes
        self.store: Store = lanes.store
        self.incarnation = incarnation
        self._random, self._numbers = uuid.uuid4().hex[:24], itertools.count()
        self._board, self._pen, self._measures = board, board.pen(), board.measures
        self.id = self._pen.start(self._random[:12])
        self._tools = tools
        self._tracers, self._events, self._outbox = tools.tracers, tools.events, tools.outbox
        self._ttl = milliseconds(self.store.settings.lock_ttl)

    def run(self, wake: str) -> int:
        """Work until the slice is over or nothing is ready, and return the number of attempts.

        An error is noted on the board before it is raised, and the clock puts the job back.
        """
        try:
            count = self._work(wake)
        except BaseException as error:
            self._pen.fail(str(safe_repr(error)), signalled=is_signalled())
            raise
        finally:
            self._measures.write()
        self._pen.close()
        return count

    def _work(self, wake: str) -> int:
        until, count = time.monotonic() + (0 if self._one_each else self.store.settings.slice), 0
        token = self._token()
        reply = self._insist("runner_take", self.node, self.incarnation, self.id, wake, token, self._ttl)
        while reply:
            claim, count = claim_of(reply, token), count + 1
            self._note_waits(claim.task, reply[-1])
            outcome = self._attempt(claim)
            self._measures.add("run", claim.task, outcome.runtime)
            self._measures.write(now=False)
            token = self._token() if time.monotonic() < until else ""
            reply = self._finish(claim, outcome, token)
        self._outbox.hurry()
        return count

    def _note_waits(self, task: str, waits: bytes | None) -> None:
        words = waits.decode().split() if waits else []
        for reason, ms in zip(words[::2], words[1::2], strict=True):
            self._measures.add(reason, task, int(ms) / 1000)

    def _token(self) -> str:
        """A new token for a claim: 96 random bits and a number, always of the same length."""
        return f"{self._random}{next(self._numbers):08x}"

    def _attempt(self, claim: Claim) -> Outcome:
        self._events.started(claim)
        if self._is_tracked(claim):
            store_state(self.app, claim, self.node, states.STARTED, {"hostname": self.node, "pid": os.getpid()})
        job = CurrentJob(
            claim.id, claim.keys, claim.token, claim.fence, claim.nth, self.lanes, undoing_of(claim),
            ttl=self.store.settings.lock_ttl,
        )  # fmt: skip
        mark = working.set(job)
        usual = self.store.settings.retry_delay
        self._pen.begin(claim.token, claim.time_limit, claim.id, claim.task)
        try:
            with in_one_process(claim.id):  # handlers may fork as well
                outcome = self._tracers.attempt(claim, usual)
        finally:
            self._pen.end()
            working.reset(mark)
        if outcome.retry and self._is_kept(claim):
            store_state(self.app, claim, self.node, states.RETRY, outcome.error, outcome.traceback)
        if outcome.kind == "succeeded":
            self._measures.times.note(claim.task, outcome.runtime)
        if outcome.kind == "parked":
            ids = loads(outcome.detail)["ids"]
            try:
                check_stored(job, ids)
                check_lanes(job, ids)
            except (NoRetry, WouldDeadlock) as error:
                return replace(failed(claim, error, outcome.runtime, usual), kind="failed")
        return outcome

    def _is_tracked(self, claim: Claim) -> bool:
        """True if the backend gets STARTED for this claim."""
        known = self.app.tasks.get(claim.task)
        return known is not None and known.track_started and self._is_kept(claim)

    def _is_kept(self, claim: Claim) -> bool:
        """True if the backend gets the states of this claim."""
        return has_results(self.app) and not claim.undoing and not is_ignored(self.app, claim.task, claim.spec)

    def _finish(self, claim: Claim, outcome: Outcome, token: str) -> Any:
        """Record how the attempt ended, and claim the next job with this token; '' claims none."""
        kind, detail, following = chain_end(claim, outcome)
        verdict, state, reply = self._insist(
            "job_finish", claim.id, claim.token, kind, detail, milliseconds(outcome.delay), outcome.most or "",
            *following, self.node, self.id, token, self._ttl,
        )  # fmt: skip
        if verdict == b"deadlock":
            error = would_deadlock(state.decode())
            return self._finish(claim, replace(failed(claim, error, outcome.runtime, 0.0), kind="failed"), token)
        if verdict in (b"accepted", b"shared"):
            self._publish(claim, outcome, state.decode(), verdict == b"shared")
        else:
            logger.warning("job %s (%s): outcome refused, %s", claim.id, claim.keys[0], verdict.decode())
        if verdict == b"condemned":  # the clock's kill must not hit the next work of this process
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def _publish(self, claim: Claim, outcome: Outcome, state: str, shared: bool) -> None:
        """Send the events, and give the end of a job to the outbox. `shared`: other calls, skipped or coalesced into
        the job, wait for it.
        """
        self._events.ended(claim, outcome, state)
        unheard = outcome.kind == "ignored" and state == "succeeded"
        if state not in TERMINAL or unheard or not (claim.tell or shared):
            return
        job = _ended(claim, outcome, state, self.node)
        error = recorded_error(self.app, job) if claim.undoing else outcome.error
        coalesces = shared or claim.tell == TELL_COALESCED
        end = JobEnd(job, claim.spec, error, outcome.traceback, coalesces, children=outcome.children)
        self._outbox.add(end, len(outcome.detail))

    def _insist(self, step: str, *args: Arg) -> Any:
        """Repeat a step until Redis answers, which is safe with the same tokens. Raises StoreUnavailable where Redis
        answers the clock all the time, and for as long as a lease not this process.
        """
        pause, since = 0.05, math.inf
        while True:
            try:
                return self.store.step(step, *args)
            except (StoreUnavailable, StoreRefused) as error:
                now = time.monotonic()
                alone = isinstance(error, StoreUnavailable) and now - self._board.heard < self.store.settings.gap
                since = min(since, now) if alone else math.inf
                if now - since > self.store.settings.lock_ttl:
                    raise
                logger.warning("%s; asking again", error)
                time.sleep(pause)
                pause = min(1.0, pause * 2)


def install_runner(app: Celery, place: Callable[[], Place]) -> None:
    """Register the task that a wake-up starts, in a worker before it forks its pool. `place` returns the place of the
    process that runs it.
    """
    tools: dict[str, Tools] = {}
    worker = os.getpid()

    def run(task: Task) -> int:
        """Run one slice. A message has the name of its wake-up."""
        try:
            here = place()
            if here.node not in tools:
                tools[here.node] = Tools(app, here)
            return Runner(app, here, tools[here.node]).run(task.request.id)
        except Exception as error:
            if os.getpid() == worker:
                raise
            logger.exception("a runner failed, and so its process ends")
            raise SystemExit("a runner failed") from error

    def flush(**_: object) -> None:
        for each in tools.values():
            each.flush()

    app.task(run, name=TASK, base=QuietTask, **_TASK_OPTIONS)
    for ending in (signals.worker_process_shutdown, signals.worker_shutdown):
        ending.connect(flush, weak=False)


def chain_end(claim: Claim, outcome: Outcome) -> tuple[str, str, tuple[Arg, Arg, Arg]]:
    """Kind and detail of the outcome for job_finish, and class, task and time limit of the next step."""
    if outcome.kind == "replaced":
        return "replaced", outcome.detail, chain.advance(loads(outcome.detail)[0])
    if outcome.kind == "succeeded" and (step := claim.following) is not None:
        return chain.end_of(claim.spec["rollback"] if claim.undoing else claim.spec, step, outcome.detail)
    return outcome.kind, outcome.detail, ("", "", "")


def undoing_of(claim: Claim) -> Undoing | None:
    """What a rollback sees of its job; None for any other claim."""
    if not claim.undoing:
        return None
    step = chain.laid(claim.spec, claim.step)
    args = tuple(chain.arguments(claim.spec, claim.step, claim.value))
    return Undoing(args, dict(step.get("kwargs", {})), claim.error, claim.value, claim.values)


def _ended(claim: Claim, outcome: Outcome, state: str, node: str) -> Job:
    error = loads(outcome.detail) if outcome.error else None
    return Job(
        id=claim.id, keys=claim.keys, state=cast(State, state), task=claim.task, args=claim.args, kwargs=claim.kwargs,
        attempt=claim.nth, losses=claim.losses, node=node, fence=claim.fence,
        submitted=None, taken=None, started=None, ended=datetime.now(UTC),
        result=outcome.value, error=claim.error if claim.undoing else error, progress=None,
    )  # fmt: skip
