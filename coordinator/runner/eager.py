"""Runs jobs at once in the calling process, for apps with `task_always_eager`.

Like Celery's own eager calls, a submit returns once the task or the whole chain has ended, with its retries and its
rollback. There are no lanes, no records and no Redis, so reads and acts of operators raise SettingsError.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from celery import Celery
from celery.result import AsyncResult
from kombu.utils.json import loads

from coordinator.errors import JobFailed, SettingsError
from coordinator.jobs import chain
from coordinator.jobs.current import CurrentJob, working
from coordinator.jobs.record import Job, cause_of
from coordinator.jobs.request import JobRequest
from coordinator.jobs.spec import Spec
from coordinator.jobs.states import State
from coordinator.jobs.submission import Submission
from coordinator.lanes.client import LaneClient
from coordinator.locks.leases import Lease
from coordinator.runner.attempt import Outcome, Tracers
from coordinator.runner.canvas import raisable
from coordinator.runner.claim import Claim
from coordinator.runner.results import JobEnd, recorded_error, send
from coordinator.runner.runner import undoing_of
from coordinator.runner.subresults import flattened
from coordinator.runner.verdict import End, verdict
from coordinator.store.client import Store

MAX_CONFLICTS = 20  # functions/rules/settle.lua
REFUSED = (
    "the app calls its tasks eagerly (task_always_eager): its jobs run at submit, without lanes or records in Redis; "
    "to look at jobs or act on them in tests, turn that off and use the pytest fixture coordinator_jobs"
)


class InThread(Tracers):
    """Tracers for jobs in their caller's thread: they raise what is meant for the caller, such as an interrupt."""

    def attempt(self, claim: Claim, retry_delay: float) -> Outcome:
        outcome = super().attempt(claim, retry_delay)
        if outcome.error is not None and not isinstance(outcome.error, Exception | SystemExit | CancelledError):
            raise outcome.error
        return outcome


class EagerLanes(LaneClient):
    def __init__(self, app: Celery) -> None:
        self._app = app
        self._tracers = InThread(app, "eager", eager=True)

    @property
    def store(self) -> Store:  # type: ignore[override]
        raise SettingsError(REFUSED)

    def submit(self, request: JobRequest) -> Submission:
        job, error = _EagerRun(self._app, self._tracers, self, request).end()
        if error is not None and self._app.conf.task_eager_propagates:
            raise error
        return Submission(job.id, "started", 0, _host=_EndedJob(job, error))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        return [self.submit(request) for request in requests]

    def holds(self, job_id: str, token: str) -> bool:
        return True

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Do nothing: nobody can read the progress."""

    def tasks_of(self, app: str) -> set[str] | None:
        return None

    @contextmanager
    def lock(self, name: str) -> Iterator[Lease]:
        """Lend a lock at once: nothing else runs."""
        yield Lease(name, "eager", "", 1, self.holds)


class _EndedJob:
    """Answers a submission's questions about its job, which has ended."""

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
    """One job, from its first step to its end."""

    def __init__(self, app: Celery, tracers: Tracers, lanes: EagerLanes, request: JobRequest) -> None:
        self._app = app
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
        outcome, claim = self._steps()
        state: State = "succeeded" if outcome.kind in ("succeeded", "ignored") else "failed"
        if state == "failed" and "rollback" in self._spec:
            state = "rolled_back" if self._roll_back(claim, outcome) else "double_fault"
        if state != "succeeded" and "hold" in self._fields:
            state = "held"
        error = None if state == "succeeded" else cause_of(outcome.detail)
        job = Job(
            id=self._request.id, keys=self._request.keys, state=state, task=claim.task, args=claim.args,
            kwargs=claim.kwargs, attempt=self._attempt, losses=0, node="eager", fence=None, submitted=None, taken=None,
            started=None, ended=datetime.now(UTC), result=outcome.value if error is None else None, error=error,
            progress=None, step=claim.step,
        )  # fmt: skip
        own = outcome.error or recorded_error(self._app, job)
        if outcome.kind != "ignored":
            send(self._app, JobEnd(job, cast(Spec, {**self._spec, "ignore_result": True}), own, outcome.traceback))
        return job, raisable(own, job)

    def _steps(self) -> tuple[Outcome, Claim]:
        number = self._spec.get("first", 0)
        value: object = None
        while True:
            claim = self._claim(self._spec, number, value)
            outcome = self._tried(claim)
            if outcome.kind != "succeeded" or claim.following is None:
                return outcome, claim
            number, value = number + 1, outcome.value
            self._values.append(value)

    def _roll_back(self, failed: Claim, outcome: Outcome) -> bool:
        """Run the rollback; True if all its steps succeeded."""
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
        laid = chain.laid(spec, number)
        united = loads(self._fields["merge_args"]) if "merge_args" in self._fields and spec is self._spec else {}
        task = chain.CANVAS if "canvas" in laid else laid.get("task") or self._fields["task"]
        return Claim(
            id=self._request.id, keys=self._request.keys, task=task, args=tuple(chain.arguments(spec, number, value)),
            kwargs={**laid.get("kwargs", {}), **united}, spec=spec, laid=laid, kind=self._fields["class"], tell=0,
            token="", fence=1, attempt=1, losses=0, forgiven=0, time_limit=None, undoing=False, step=number, back=0,
            value=value, values=(), error=None,
        )  # fmt: skip

    def _tried(self, claim: Claim) -> Outcome:
        """Run attempts until one ends the step, or none is left. Conflicts do not count, up to a bound."""
        forgiven = 0
        for attempt in range(1, 2**31):
            self._attempt = attempt - forgiven
            outcome = self._attempted(replace(claim, attempt=attempt, forgiven=forgiven))
            if outcome.kind == "conflict" and forgiven < MAX_CONFLICTS:
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
        """The outcome from the sub-results, which have all ended since Celery calls them eagerly, too."""
        value = outcome.value
        parts = list(flattened(value if isinstance(value, list | tuple) else [value]))
        ends = [End(part.successful(), part.result) if isinstance(part, AsyncResult) else None for part in parts]
        kind, detail = verdict(loads(outcome.detail), ends, self._app.coordinator.settings.max_payload)
        return replace(outcome, kind=kind, detail=detail, value=loads(detail) if kind == "succeeded" else None)
