"""The runner: started by a wake-up, it claims ready jobs that its node may run, one after the other, for one slice
(setting `slice`, seconds).

    claim ─► attempt ─► finish and claim (one round trip) ─► attempt …
                          └─► result and links: into the outbox

The runner repeats a request with the same tokens until Redis answers, so that a lost reply changes nothing. Redis
accepts the outcome of an attempt, or answers `lost`: another runner has the job, and this outcome does not count; or
`condemned`: the supervisor is about to kill this process, so the process kills itself.

An error of the runner itself, not of a task, may mean that its process is damaged, for example that no file descriptor
is left. In a pool of processes the process then ends, and the pool replaces it. In any other pool only the runner ends,
and the supervisor wakes the node again.
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
from typing import Any, NamedTuple, TypeVar, cast

from celery import Celery, signals, states
from celery.app.task import Task
from kombu.utils.encoding import safe_repr
from kombu.utils.json import loads

from coordinator.core.celery_patches.quiet_task import QuietTask
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.jobs import chain
from coordinator.core.jobs.current import CurrentJob, Undoing, working
from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.core.jobs.request import TELL_COALESCED
from coordinator.core.jobs.states import State
from coordinator.core.lanes.client import LaneClient
from coordinator.core.locks.leases import would_deadlock
from coordinator.core.runner.as_job import in_one_process
from coordinator.core.runner.attempt import Outcome, Tracers, failed, is_signalled
from coordinator.core.runner.canvas import has_results
from coordinator.core.runner.claim import TASK, Claim, claim_of
from coordinator.core.runner.outbox import Outbox
from coordinator.core.runner.own_lane import check_lanes
from coordinator.core.runner.results import JobEnd, is_ignored, recorded_error, store_state
from coordinator.core.runner.subresults import check_stored
from coordinator.core.runner.task_events import TaskEvents
from coordinator.core.store.client import Store
from coordinator.core.store.step import Call, Reply
from coordinator.core.store.steps import job_finish, runner_take
from coordinator.core.store.times import milliseconds
from coordinator.core.store.wire import Arg
from coordinator.errors import NoRetry, StoreRefused, StoreUnavailable, WouldDeadlock

logger = logging.getLogger(__name__)
R = TypeVar("R")

_TASK_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": False, "rate_limit": None,
}  # fmt: skip
_LAST = 1.0  # seconds for which a process that ends waits until its queued results are sent, and then its queued events


class WorkerContext(NamedTuple):
    """The worker that this process belongs to: its node, incarnation and status file; and a client of the lanes.

    `node`: the worker's name. The `hostname` of a request is no substitute: without Celery's fast tracing, that is the
    name of the machine. `one_job_per_runner`: True if a runner ends after one job, since the worker sets
    `max_tasks_per_child` or `max_memory_per_child`.
    """

    node: str
    lanes: LaneClient
    incarnation: str
    status_file: StatusFile
    one_job_per_runner: bool = False


class RunnerServices:
    """The tracers, task events and outbox that the runners of one process share."""

    def __init__(self, app: Celery, context: WorkerContext) -> None:
        self.tracers = Tracers(app, context.node)
        self.events = TaskEvents(app, context.node, context.status_file)
        self.outbox = Outbox(app, context.lanes.store)

    def flush(self) -> None:
        """Send all queued results and events before the process ends; drop those that take longer than 2 seconds."""
        self.outbox.flush(_LAST)
        self.events.flush(_LAST)


class Runner:
    """Claims and runs jobs, one after the other, for one slice (setting `slice`, seconds) in this process."""

    def __init__(self, app: Celery, context: WorkerContext, services: RunnerServices) -> None:
        self.node, lanes, incarnation, status_file, self._one_job_per_runner = context
        self.app = app
        self.lanes = lanes
        self.store: Store = lanes.store
        self.incarnation = incarnation
        self._random, self._numbers = uuid.uuid4().hex[:24], itertools.count()
        self._status_file, self._writer, self._measures = status_file, status_file.writer(), status_file.measures
        self.id = self._writer.start(self._random[:12])
        self._services = services
        self._tracers, self._events, self._outbox = services.tracers, services.events, services.outbox
        self._ttl = milliseconds(self.store.settings.lock_ttl)

    def run(self, wake: str) -> int:
        """Run jobs until the slice is over or no job is ready, and return the number of attempts. `wake`: the name of
        the wake-up that started this runner.

        An error of the runner is written to the status file before it is raised; the supervisor then puts the job back
        into its lanes.
        """
        try:
            count = self._work(wake)
        except BaseException as error:
            self._writer.fail(str(safe_repr(error)), signalled=is_signalled())
            raise
        finally:
            self._measures.write()
        self._writer.close()
        return count

    def _work(self, wake: str) -> int:
        until, count = time.monotonic() + (0 if self._one_job_per_runner else self.store.settings.slice), 0
        token = self._token()
        reply = self._take(wake, token)
        while reply:
            claim, count = claim_of(reply, token), count + 1
            self._note_waits(claim.task, reply[-1])
            outcome = self._attempt(claim)
            self._measures.add("run", claim.task, outcome.runtime)
            self._measures.write(now=False)
            token = self._token() if time.monotonic() < until else ""
            reply = self._later(self._finish(claim, outcome, token), token)
        self._outbox.hurry()
        return count

    def _take(self, wake: str, token: str) -> Reply:
        call = runner_take.of(self.node, self.incarnation, self.id, wake, token, self._ttl)
        return self._later(self._insist(call), token)

    def _later(self, reply: Reply, token: str) -> Reply:
        """The claim in a reply. Where nothing is ready, but the rate of a quota lets a job start in a moment, wait for
        that, since a wake-up would come a moment too late.
        """
        while reply and len(reply) == 2:
            time.sleep(int(reply[0]) / 1e6)
            call = runner_take.of(self.node, self.incarnation, self.id, reply[1].decode(), token, self._ttl)
            reply = self._insist(call)
        return reply

    def _note_waits(self, task: str, waits: bytes | None) -> None:
        words = waits.decode().split() if waits else []
        for reason, ms in zip(words[::2], words[1::2], strict=True):
            self._measures.add(reason, task, int(ms) / 1000)

    def _token(self) -> str:
        """Make the token of the next claim: 96 random bits, and then the number of the claim in this runner, as 8 hex
        digits, by which `RunnerStatus` tells a later claim from an earlier one.
        """
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
        self._writer.begin(claim.token, claim.time_limit, claim.id, claim.task)
        try:
            with in_one_process(claim.id):  # around the whole attempt: not only the body, handlers may fork as well
                outcome = self._tracers.attempt(claim, usual)
        finally:
            self._writer.end()
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
        """True if the state STARTED is stored in the result backend for this claim (the task's `track_started`)."""
        known = self.app.tasks.get(claim.task)
        return known is not None and known.track_started and self._is_kept(claim)

    def _is_kept(self, claim: Claim) -> bool:
        """True if the states of this claim are stored in the result backend: not those of a rollback or of a task that
        ignores its result.
        """
        return has_results(self.app) and not claim.undoing and not is_ignored(self.app, claim.task, claim.spec)

    def _finish(self, claim: Claim, outcome: Outcome, token: str) -> Any:
        """Tell Redis the outcome of an attempt, and claim the next job in the same round trip. `token`: of the new
        claim; "" claims none. Returns Redis' reply to the claim, for `claim_of`; None if no job was claimed.
        """
        kind, detail, following = chain_end(claim, outcome)
        verdict, state, reply = self._insist(job_finish.of(
            claim.id, claim.token, kind, detail, milliseconds(outcome.delay), outcome.most or None, *following,
            self.node, self.id, token, self._ttl,
        ))  # fmt: skip
        if verdict == b"deadlock":
            error = would_deadlock(state.decode())
            return self._finish(claim, replace(failed(claim, error, outcome.runtime, 0.0), kind="failed"), token)
        if verdict in (b"accepted", b"shared"):
            self._publish(claim, outcome, state.decode(), verdict == b"shared")
        else:
            logger.warning(
                "job %s (%s): Redis refused the outcome: %s", claim.id, "".join(claim.keys[:1]), verdict.decode()
            )
        if verdict == b"condemned":  # end now: the supervisor's kill must not hit a later task in this process
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def _publish(self, claim: Claim, outcome: Outcome, state: str, shared: bool) -> None:
        """Queue the task events of an attempt and, if it ended the job, the job's result and links for the outbox.
        `state`: of the job, after the attempt. `shared`: True if other calls get the same result, since they were
        skipped or coalesced into the job.
        """
        self._events.ended(claim, outcome, state)
        unheard = outcome.kind == "ignored" and state == "succeeded"
        if state not in TERMINAL or unheard or not (claim.tell or shared):
            return
        job = _ended(claim, outcome, state, self.node)
        error = recorded_error(self.app, job) if claim.undoing else outcome.error
        all_of_them = claim.tell == TELL_COALESCED
        end = JobEnd(
            job, claim.spec, error, outcome.traceback, shared or all_of_them, not all_of_them, children=outcome.children
        )
        self._outbox.add(end, len(outcome.detail))

    def _insist(self, call: Call[R]) -> R:
        """Send a request to Redis again and again until Redis answers; safe, since each try has the same tokens. Raises
        StoreUnavailable if Redis answers the supervisor, but not this process, for as long as a lease lasts: then the
        fault is in this process.
        """
        pause, since = 0.05, math.inf
        while True:
            try:
                return call.run(self.store)
            except (StoreUnavailable, StoreRefused) as error:
                now = time.monotonic()
                is_answered = now - self._status_file.last_answer < self.store.settings.gap
                alone = is_answered and isinstance(error, StoreUnavailable)
                since = min(since, now) if alone else math.inf
                if now - since > self.store.settings.lock_ttl:
                    raise
                logger.warning("a runner repeats a request to Redis: %s", error)
                time.sleep(pause)
                pause = min(1.0, pause * 2)


def install_runner(app: Celery, context: Callable[[], WorkerContext]) -> None:
    """Register the task `coordinator.run`, which a wake-up starts and which runs a runner. Call this in a worker before
    it forks its pool. `context` returns the worker to which the calling process belongs.
    """
    services: dict[str, RunnerServices] = {}
    worker = os.getpid()

    def run(task: Task) -> int:
        """Run jobs for one slice. The id of the task's message is the name of the wake-up."""
        try:
            own_worker = context()
            if own_worker.node not in services:
                if os.getpid() != worker:
                    own_worker.lanes.store.connections.call_it("runner", own_worker.node)
                services[own_worker.node] = RunnerServices(app, own_worker)
            return Runner(app, own_worker, services[own_worker.node]).run(task.request.id)
        except Exception as error:
            if os.getpid() == worker:
                raise
            logger.exception("a runner failed; its pool process ends, and is replaced")
            raise SystemExit("a runner failed") from error

    def flush(**_: object) -> None:
        for each in services.values():
            each.flush()

    app.task(run, name=TASK, base=QuietTask, **_TASK_OPTIONS)
    for ending in (signals.worker_process_shutdown, signals.worker_shutdown):
        ending.connect(flush, weak=False)


def chain_end(claim: Claim, outcome: Outcome) -> tuple[str, str, tuple[str, str, Arg]]:
    """Return the kind and detail of an attempt's outcome for the Redis function `job_finish`, and the routing class,
    task and time limit (ms) of the step that follows in the chain: three times "" if none does.
    """
    if outcome.kind == "replaced":
        return "replaced", outcome.detail, chain.advance(loads(outcome.detail)[0])
    if outcome.kind == "awaits":
        return "awaits", outcome.detail, chain.advance(loads(loads(outcome.detail)["steps"])[0])
    if outcome.kind == "succeeded" and (step := claim.following) is not None:
        return chain.end_of(claim.spec["rollback"] if claim.undoing else claim.spec, step, outcome.detail)
    return outcome.kind, outcome.detail, ("", outcome.quota, "")


def undoing_of(claim: Claim) -> Undoing | None:
    """Return the failure that a rollback undoes, for its task to read; None if `claim` is no rollback."""
    if not claim.undoing:
        return None
    step = chain.step_spec(claim.spec, claim.step)
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
