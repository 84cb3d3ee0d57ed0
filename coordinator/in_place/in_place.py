"""Jobs in place: at submit, without Redis, for users' suites and for an app whose tasks are called eagerly.

The lanes do here what they do on a fleet; the project's own suite drives both side by side. The calling thread runs
each job as soon as its turn comes, and a call returns once nothing more can run. So a job that is submitted to a key
whose job is at work (or whose lock is held) runs once that is over, is skipped, or melts, as `when_busy` says. A job
with a limit above 1 that is submitted by a job at work runs within it. A task's error is the job's, not the
submitter's. Links and error links are called in place.

Left out is all that needs time, processes or a broker:

- No time passes. A delay (`not_before`, `eta`, `countdown`) is over at once, and attempts follow each other. Nothing
  expires, lapses or is lost. `jobs.flush()` puts in line what a sorter holds.
- There are no nodes: queues, labels, drains and turns between groups have no effect, and no running job is stopped.
  A job that is cancelled at work ends as cancelled after its attempt.
- No result backend is written: `get()` of a keyed task's call finds nothing. The steps of its chain are called in
  place, and the body of its chord is not.
- Nobody forgets an instance, whatever its `keep`. `Grab.wait` raises WaitTimeout at once where the winner is at work:
  it could not end meanwhile.
- A lock that would have to wait raises Locked at once, whatever its `wait`: nobody could release it meanwhile. One that
  its own code holds up raises WouldDeadlock, as on a fleet.

All of it belongs in one thread. Where the app calls its tasks eagerly (`task_always_eager`), threads take turns, 1000
jobs at least are kept, and `task_eager_propagates` has a submit raise the error of its job.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from celery import Celery
from celery.result import AsyncResult
from kombu.utils.json import dumps, loads

from coordinator.errors import JobFailed, LeaseLost, Locked, UnknownJob
from coordinator.execution.attempt import Outcome, Tracers, failed
from coordinator.execution.claim import Claim
from coordinator.execution.parked import End, verdict
from coordinator.execution.results import JobEnd, recorded_error, send
from coordinator.execution.runner import undoing_of
from coordinator.execution.subresults import JobHandle, flattened
from coordinator.in_place.attempts import NODE
from coordinator.in_place.causes import causes_in_place
from coordinator.in_place.lanes import Memory
from coordinator.in_place.rings import ring, ring_of_code
from coordinator.in_place.sorters import SortersInMemory
from coordinator.jobs.current import CurrentJob, working
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.request import JobRequest
from coordinator.jobs.spec import Message, Spec
from coordinator.jobs.submission import Submission
from coordinator.lanes.leases import Lease, holders, holding, would_deadlock
from coordinator.lanes.locks import check_lock, own_lease

_KEPT = 1000  # jobs, where the app calls its tasks eagerly


class InPlace(Memory):
    """Runs what may start, at once. `eager`: for all of a process that calls the app's tasks eagerly."""

    def __init__(self, app: Celery, eager: bool = False) -> None:
        super().__init__()
        self.sorters = SortersInMemory(self)
        self._eager_app = eager
        self._turn = threading.RLock()
        self._app = app
        self._tracers = Tracers(app, NODE, in_place=True)
        self._handles: dict[str, list[AsyncResult | JobHandle | None]] = {}
        self._raised: dict[str, tuple[BaseException, str]] = {}

    def why(self, job_id: str) -> list[str]:
        return causes_in_place(self, job_id)

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        if not self._eager_app:
            return super().submit_many(requests)
        with self._turn:
            self._forget()
            made = super().submit_many(requests)
            for one in made if self._app.conf.task_eager_propagates else ():
                job = self.job(one.job_id) if one.outcome in ("started", "queued") else None
                if job is not None and job.over and job.state != "succeeded":
                    raise recorded_error(self._app, job) or JobFailed(job.id, job.state)
        return made

    def _forget(self) -> None:
        """The oldest jobs that are over."""
        records = self.rules.records
        if len(records) > 2 * _KEPT:
            for job_id in list(records)[:-_KEPT]:
                if "alias" in records[job_id] or records[job_id]["state"] in TERMINAL:
                    del records[job_id]
            self.rules.instances.forget(_KEPT)
            self._submitted_ids = [one for one in self._submitted_ids if one in records]

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> Iterator[Lease]:
        key = check_lock(name, ttl, wait)
        if own := own_lease(key):
            yield own
            return
        lease = self._lease(key, wait > 0)
        holding.set((*holding.get(), lease))
        try:
            yield lease
        finally:
            holding.set(tuple(one for one in holding.get() if one is not lease))
            if held := self.holds(lease.job_id, lease.token):
                self.rules.leave(lease.job_id, "succeeded")
            self._settle()
        if not held:
            raise LeaseLost(key, lease.fence)

    def _lease(self, key: str, queue: bool) -> Lease:
        rules, job_id = self.rules, f"lock-{uuid.uuid4()}"
        if queue or not rules.is_busy(key):
            rules.write(job_id, {"keys": key}, "waiting")
            rules.score(job_id)
            rules.enter(job_id)
            if rules.may_start(job_id):
                rules.start(job_id)
                record = rules.records[job_id]
                self._settle()
                return Lease(key, job_id, record["token"], int(record["fence"]), self.holds)
            found = ring_of_code(rules, job_id, holders())
            rules.leave(job_id, "failed")
            if found:
                self._settle()
                raise would_deadlock(found)
        self._settle()
        raise Locked(key, next(iter(rules.line(key)), None))

    def _settle(self) -> None:
        while True:
            self._tell()
            self.rules.join_due()
            if not self._look_at_parked() and not self._run() and not self._break_rings():
                return

    def _run(self) -> bool:
        """One attempt of the next ready job; False: nothing is ready."""
        if (job_id := self.rules.take()) is None:
            return False
        self.rules.start(job_id)
        claim = self.rules.claim(job_id)
        try:
            outcome = self._attempt(claim)
        except BaseException:
            if self.holds(job_id, claim.token):
                self.rules.leave(job_id, "failed")
            raise
        if self.holds(job_id, claim.token):  # nobody took its lane from it
            self._conclude(job_id, outcome)
        return True

    def _conclude(self, job_id: str, outcome: Outcome) -> None:
        if outcome.error:
            self._raised[job_id] = outcome.error, outcome.traceback
        self.rules.conclude(job_id, outcome)

    def _attempt(self, claim: Claim) -> Outcome:
        job = CurrentJob(claim.id, claim.keys, claim.token, claim.fence, claim.nth, self, undoing_of(claim))
        mark = working.set(job)
        try:
            with self._eager():
                outcome = self._tracers.attempt(claim, 0.0)
        finally:
            working.reset(mark)
        if isinstance(outcome.error, KeyboardInterrupt):
            raise outcome.error
        if outcome.kind == "parked":
            if found := self._ring(claim.id, outcome.detail):
                error = would_deadlock(found[0])
                return replace(failed(claim, error, outcome.runtime, 0.0), kind="failed")
            handles = flattened(outcome.value if isinstance(outcome.value, list | tuple) else [outcome.value])
            self._handles[claim.id] = list(handles)
        return outcome

    @contextmanager
    def _eager(self) -> Iterator[None]:
        """Call in place each task that is published."""
        before = self._app.conf.task_always_eager
        self._app.conf.task_always_eager = True
        try:
            yield
        finally:
            self._app.conf.task_always_eager = before

    def _tell(self) -> None:
        """Links and error links."""
        while self.rules.owed:
            job = self.job(self.rules.owed.pop(0))
            error, traceback = self._raised.pop(job.id, (recorded_error(self._app, job), ""))
            with self._eager():
                send(self._app, JobEnd(job, _untold(self.spec(job.id)), error, traceback))

    # Sub-results

    def _ring(self, job_id: str, handles: str | None = None) -> tuple[str, list[str]] | None:
        """Nobody waits for a job whose attempt counts no more."""
        stopped = handles and "stop" in self.rules.records[job_id]
        return None if stopped else ring(self.rules, job_id, handles)

    def _break_rings(self) -> bool:
        """The youngest of those that are parked on a ring loses its attempt. Was there one?"""
        for job_id in sorted(self.rules.parked, key=str.encode):
            if self.rules.records[job_id]["state"] == "parked" and (found := self._ring(job_id)):
                why, members = found
                parked = [one for one in members if self.rules.records[one]["state"] == "parked"]
                youngest = max(parked, key=lambda one: int(self.rules.records[one]["fence"]))
                error = {"type": "WouldDeadlock", "module": "coordinator.errors"}
                detail = dumps({**error, "message": f"it would wait for itself: {why}"})
                self._conclude(youngest, Outcome("failed", detail))
                return True
        return False

    def _look_at_parked(self) -> bool:
        """Jobs go on whose sub-results ended; the sub-results of those that are over are cancelled. Was there one?"""
        found = [(job_id, self.rules.records[job_id]["state"] == "parked") for job_id in sorted(self.rules.parked)]
        return sum(self._look(job_id, parked) for job_id, parked in found) > 0

    def _look(self, job_id: str, parked: bool) -> bool:
        handles = self._handles[job_id]
        ends = [None if handle is None else self._end_of(handle) for handle in handles]
        open_ = [handle.id for handle, end in zip(handles, ends, strict=True) if handle is not None and end is None]
        if parked and open_:
            return False
        record = self.rules.records[job_id]
        if parked and record["state"] != "parked":
            return True
        self.rules.parked.discard(job_id)
        if parked:
            most = self._app.coordinator.settings.max_payload
            kind, detail = verdict(loads(record.pop("handles")), ends, most)
            self._conclude(job_id, Outcome(kind, detail))
        else:
            for one in (one for one in open_ if one in self.rules.records):
                self._end(one, why=f"sub-result of job {job_id}, which is over", by="coordinator")
        return True

    def _end_of(self, handle: AsyncResult | JobHandle) -> End | None:
        """None while it has not ended."""
        try:
            job = self.job(handle.id)
        except UnknownJob:
            if isinstance(handle, JobHandle):
                raise
            return End(handle.successful(), handle.result) if handle.ready() else None
        well = job.state == "succeeded"
        return End(well, job.result if well else job.error) if job.over else None


def _untold(spec: Spec) -> Spec:
    """No backend keeps the result, or counts the parts of a chord."""
    message = {name: value for name, value in spec.get("message", {}).items() if name != "chord"}
    return {**spec, "ignore_result": True, "message": cast(Message, message)}
