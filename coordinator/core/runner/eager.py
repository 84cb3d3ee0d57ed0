"""Runs jobs at once in the calling process, for apps with `task_always_eager`.

As with Celery's own eager calls, a submit returns once the task or the whole chain of the job has ended, with all
retries and the rollback. There are no lanes, no records and no Redis: to read jobs or act on them raises SettingsError.
The ends of the last jobs are remembered, for those that are to run after them. Events are kept in the memory of the
process. A job that waits for one goes on at once if it is set, and else as at the end of the time.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from celery import Celery
from celery.result import AsyncResult
from kombu.utils.json import dumps, loads

from coordinator.core.events.event import InProcess
from coordinator.core.jobs import chain, collecting
from coordinator.core.jobs.after import in_order, waits_in
from coordinator.core.jobs.current import CurrentJob, working
from coordinator.core.jobs.record import Job, cause_of
from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.spec import ErrorRecord, Spec, StepSpec
from coordinator.core.jobs.states import State
from coordinator.core.jobs.submission import Submission
from coordinator.core.lanes.client import LaneClient
from coordinator.core.locks.leases import Lease
from coordinator.core.runner.attempt import Outcome, Tracers, failed
from coordinator.core.runner.canvas import raisable
from coordinator.core.runner.claim import Claim
from coordinator.core.runner.results import JobEnd, recorded_error, send
from coordinator.core.runner.runner import undoing_of
from coordinator.core.runner.subresults import flattened
from coordinator.core.runner.verdict import End, verdict
from coordinator.core.store.client import Store
from coordinator.errors import CauseFailed, EventTimeout, InvalidJob, JobFailed, SettingsError, UnknownJob

REMEMBERED = 1000  # jobs whose ends are remembered
MAX_CONFLICTS = 20  # conflicts of a step that do not count as attempts: the same as in functions/rules/settle.lua
_LATE = "event {} is not set: an eager job waits for nothing, so set the event before the submit"
REFUSED = (
    "the app calls its tasks eagerly (task_always_eager): jobs run at submit, without lanes or records in Redis; "
    "to look at jobs or act on them in tests, turn that off and use the pytest fixture coordinator_jobs"
)


class InThread(Tracers):
    """Runs tasks of eager jobs in the thread that submits them. An error that is meant for this thread, such as a
    KeyboardInterrupt, is raised and not recorded as the outcome of the attempt.
    """

    def attempt(self, claim: Claim, retry_delay: float) -> Outcome:
        outcome = super().attempt(claim, retry_delay)
        if outcome.error is not None and not isinstance(outcome.error, Exception | SystemExit | CancelledError):
            raise outcome.error
        return outcome


class EagerLanes(LaneClient):
    """A client of the lanes without Redis: each submit runs the job at once, in the calling process."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._ends: dict[str, tuple[State, object]] = {}  # state and result of the last jobs, by id
        self._tracers = InThread(app, "eager", eager=True)
        self.events = InProcess(app.coordinator.settings)

    @property
    def store(self) -> Store:  # type: ignore[override]
        raise SettingsError(REFUSED)

    def submit(self, request: JobRequest) -> Submission:
        given, failed = self._causes_of(request)
        run = _EagerRun(self._app, self._tracers, self, request, given)
        job, error = run.fail_with(*failed) if failed else run.end()
        self._ends[job.id] = job.state, job.result
        if len(self._ends) > REMEMBERED:
            del self._ends[next(iter(self._ends))]
        if error is not None and self._app.conf.task_eager_propagates:
            raise error
        return Submission(job.id, "started", 0, _host=_EndedJob(job, error))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        waiting = list(requests)
        order = in_order([(request.id, request.after) for request in waiting])
        submitted = {place: self.submit(waiting[place]) for place in order}
        return [submitted[place] for place in range(len(waiting))]

    def _causes_of(self, request: JobRequest) -> tuple[dict[str, object], tuple[str, str] | None]:
        """Return the results that a job gets of its causes, by argument; and of the first that did not succeed the id
        and the job's policy, None where it runs. Raises UnknownJob for a job that did not run before, or long ago.
        """
        policy, waits = waits_in(request.after) if request.after else ("fail", ())
        given: dict[str, object] = {}
        failed = None
        for wait in waits:
            if wait.event:
                kept = self.events.read(wait.event)
                if kept is None:
                    raise InvalidJob(_LATE.format(wait.event))
                if wait.argument:
                    given[wait.argument] = loads(kept.value)
                continue
            if wait.job_id not in self._ends:
                raise UnknownJob(wait.job_id)
            state, result = self._ends[wait.job_id]
            if state != "succeeded" and policy != "run":
                failed = failed or (wait.job_id, policy)
            if wait.argument:
                given[wait.argument] = result
        return given, failed

    def holds(self, job_id: str, token: str) -> bool:
        return True

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Do nothing: an eager job has no record in which to store its progress."""

    def tasks_of(self, app: str) -> set[str] | None:
        return None

    @contextmanager
    def lock(self, name: str) -> Iterator[Lease]:
        """Yield a lease without waiting, and without a lock in Redis: in eager mode no other job runs."""
        yield Lease(name, "eager", "", 1, self.holds)


class _EndedJob:
    """Gives the record and the error of an eager job to `Submission.job()` and `wait()`; the job has always ended."""

    def __init__(self, job: Job, error: BaseException | None) -> None:
        self._job = job
        self._error = error

    def job(self, job_id: str) -> Job:
        return self._job

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        return self._job

    def _error_of(self, job: Job) -> BaseException:
        return self._error or JobFailed(job.id, job.state, (job.error or {}).get("message", ""))


class _EagerRun:
    """Runs one eager job from its first step to its end: all steps, their retries, and the rollback if it fails."""

    def __init__(
        self, app: Celery, tracers: Tracers, lanes: EagerLanes, request: JobRequest, given: Mapping[str, object]
    ) -> None:  # fmt: skip
        self._app = app
        self._given = given  # results of the job's causes, by argument
        self._tracers = tracers
        self._lanes = lanes
        self._request = request
        names = [str(part) for part in request.fields]
        self._fields = dict(zip(names[::2], names[1::2], strict=True))
        self._spec: Spec = loads(self._fields["spec"])
        self._tries = int(self._fields["limits"].split(" ")[0])
        self._attempt = 0
        self._values: list[object] = []

    def end(self) -> tuple[Job, BaseException | None]:
        """Run the job, publish its links, and return its record and its error; None if it succeeded."""
        outcome, claim = self._steps()
        state: State = "succeeded" if outcome.kind in ("succeeded", "ignored") else "failed"
        if state == "failed" and "rollback" in self._spec:
            state = "rolled_back" if self._roll_back(claim, outcome) else "double_fault"
        if state != "succeeded" and "hold" in self._fields:
            state = "held"
        error = None if state == "succeeded" else cause_of(outcome.detail)
        job = self._job(state, claim, outcome.value if error is None else None, error)
        own = outcome.error or recorded_error(self._app, job)
        if outcome.kind != "ignored":
            send(self._app, JobEnd(job, cast(Spec, {**self._spec, "ignore_result": True}), own, outcome.traceback))
        return job, raisable(own, job)

    def fail_with(self, cause: str, policy: str) -> tuple[Job, BaseException]:
        """Return the record and the error of a job that does not run, since its cause did not succeed."""
        error = CauseFailed(f"it was to run after job {cause}, which did not succeed")
        claim = self._claim(self._spec, self._spec.get("first", 0), None)
        record: ErrorRecord = {"type": "CauseFailed", "module": "coordinator.errors", "message": str(error)}
        job = self._job("held" if policy == "hold" else "failed", claim, None, record)
        if policy != "hold":
            send(self._app, JobEnd(job, cast(Spec, {**self._spec, "ignore_result": True}), error))
        return job, error

    def _job(self, state: State, claim: Claim, result: object, error: ErrorRecord | None) -> Job:
        return Job(
            id=self._request.id, keys=self._request.keys, state=state, task=claim.task, args=claim.args,
            kwargs=claim.kwargs, attempt=self._attempt, losses=0, node="eager", fence=None, submitted=None, taken=None,
            started=None, ended=datetime.now(UTC), result=result, error=error, progress=None, step=claim.step,
        )  # fmt: skip

    def _steps(self) -> tuple[Outcome, Claim]:
        number, spec = self._spec.get("first", 0), self._spec
        value: object = None
        while True:
            claim = self._claim(spec, number, value)
            outcome = self._tried(claim)
            if outcome.kind == "awaits":
                steps, value = self._woken(loads(outcome.detail), value)
                if not steps:
                    return failed(claim, EventTimeout(_LATE.format(loads(outcome.detail)["event"])), 0.0, 0.0), claim
                spec = chain.detoured(self._spec, number, steps)
                continue
            if outcome.kind != "succeeded" or claim.following is None:
                return outcome, claim
            if spec.get("rest"):
                _, detail, _ = chain.end_of(spec, claim.following, dumps(outcome.value))
                spec = chain.detoured(self._spec, number, loads(detail))
                continue
            number, value, spec = number + 1, outcome.value, self._spec
            self._values.append(value)

    def _woken(self, wait: Mapping[str, str], value: object) -> tuple[list[StepSpec], object]:
        """The steps with which a job goes on that waits for an event, and the value for the first of them."""
        if kept := self._lanes.events.read(wait["event"]):
            return loads(wait["steps"]), loads(kept.value)
        return loads(wait["else"].partition("\0")[2] or "[]"), value

    def _roll_back(self, failed: Claim, outcome: Outcome) -> bool:
        """Run the rollback of a job; True if all steps of the rollback succeeded. `failed`, `outcome`: the claim and
        outcome of the last attempt at the job.
        """
        rollback, value = self._spec["rollback"], None
        for number in range(len(rollback.get("steps", (1,)))):
            claim = replace(
                self._claim(rollback, number, value), spec=self._spec, undoing=True, step=failed.step, back=number,
                value=failed.value, values=tuple(self._values), error=cause_of(outcome.detail),
            )  # fmt: skip
            undone = self._attempted(claim)
            if undone.kind != "succeeded":
                return False
            value = undone.value
        return True

    def _claim(self, spec: Spec, number: int, value: object) -> Claim:
        step = chain.step_spec(spec, number)
        args, kwargs = chain.arguments(spec, number, value), dict(step.get("kwargs", {}))
        if "calls" in self._fields and spec is self._spec:
            args, kwargs = collecting.given(self._fields["calls"])
        if spec is self._spec and number == spec.get("first", 0):
            kwargs |= self._given
        task = chain.CANVAS if "canvas" in step else step.get("task") or self._fields["task"]
        return Claim(
            id=self._request.id, keys=self._request.keys, task=task, args=tuple(args),
            kwargs=kwargs, spec=spec, step_spec=step, kind=self._fields["class"], tell=0,
            token="", fence=1, attempt=1, losses=0, forgiven=0, time_limit=None, undoing=False, step=number, back=0,
            value=value, values=(), error=None, limits=self._fields["limits"],
        )  # fmt: skip

    def _tried(self, claim: Claim) -> Outcome:
        """Run attempts at a step, without pauses, until one does not call for a retry or none is left. The first 20
        conflicts do not count as attempts.
        """
        forgiven = 0
        for attempt in range(1, 2**31):
            self._attempt = attempt - forgiven
            outcome = self._attempted(replace(claim, attempt=attempt, forgiven=forgiven))
            if outcome.kind in ("conflict", "cooled_down") and forgiven < MAX_CONFLICTS:
                forgiven += 1
            elif outcome.kind != "raised" or self._attempt >= (outcome.most or self._tries):
                break
        return outcome

    def _attempted(self, claim: Claim) -> Outcome:
        job = CurrentJob(claim.id, claim.keys, "", 1, max(1, self._attempt), self._lanes, undoing_of(claim))
        mark = working.set(job)
        try:
            outcome = self._tracers.attempt(claim, 0.0)
        finally:
            working.reset(mark)
        return self._with_parts(outcome) if outcome.kind == "parked" else outcome

    def _with_parts(self, outcome: Outcome) -> Outcome:
        """Return the final outcome of a parked attempt, from its sub-results. They have all ended, since Celery calls
        them eagerly, too.
        """
        value = outcome.value
        parts = list(flattened(value if isinstance(value, list | tuple) else [value]))
        ends = [End(part.successful(), part.result) if isinstance(part, AsyncResult) else None for part in parts]
        kind, detail = verdict(loads(outcome.detail), ends, self._app.coordinator.settings.max_payload)
        return replace(outcome, kind=kind, detail=detail, value=loads(detail) if kind == "succeeded" else None)
