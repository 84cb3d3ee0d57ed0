"""For users' own suites: jobs run in place, at submit, without Redis. A plugin of pytest; its fixture is there at once.

    def test_an_order_is_shipped(coordinator_jobs):
        jobs = coordinator_jobs(shop.coordinator)
        shop.order(42)
        assert [job.key for job in jobs.submitted] == ["order/42"]
        assert shop.coordinator.job(jobs.submitted[0].id).state == "succeeded"

What holds on a fleet holds here: one job at a time on a key, in order. So a job that is submitted to a key whose job is
at work (or whose lock is held) runs once that is over, is skipped, or melts, as `when_busy` says. Attempts follow each
other at once; links and error links are called in place. A task's error is the job's, not the submitter's. Delays,
priorities, limits above 1 and result backends are left out. What a sorter holds is put in line by `jobs.flush()`: here
no time passes. All of it belongs in one thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from celery import Celery

from coordinator import orders
from coordinator.attempt import Outcome, Tracers
from coordinator.checks import check_keys
from coordinator.current import CurrentJob, current_job, working
from coordinator.errors import LeaseLost, Locked, SettingsError
from coordinator.extension import Coordinator
from coordinator.locks import Lease
from coordinator.memory import Memory, now
from coordinator.memory_sorters import SortersInMemory
from coordinator.notices import send
from coordinator.parked import at_once
from coordinator.runner import undoing_of
from coordinator.work import work_of

NODE = "in-place"
MAX_CONFLICTS = 20  # as in lua/ending.lua


@pytest.fixture
def coordinator_jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Coordinator], InPlace]:
    """Call it with a Coordinator: for this test, its jobs run in place."""

    def begin(coordinator: Coordinator) -> InPlace:
        if coordinator.app is None:
            raise SettingsError("a Coordinator without an app has no tasks that could run in place")
        in_place = InPlace(coordinator.app)
        monkeypatch.setitem(vars(coordinator), "core", in_place)
        monkeypatch.setitem(vars(coordinator), "_locks", in_place)
        monkeypatch.setitem(vars(coordinator), "_sorters", SortersInMemory(in_place))
        monkeypatch.setitem(vars(coordinator), "why", in_place.why)
        return in_place

    return begin


class InPlace(Memory):
    """Runs what stands in front, at once."""

    def __init__(self, app: Celery) -> None:
        super().__init__()
        self._app = app
        self._tracers = Tracers(app, NODE)
        self._fences = count(1)

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> Iterator[Lease]:
        """Raises Locked at once where it is held: nobody could release it meanwhile."""
        (key,) = check_keys(name)
        job = current_job()
        if job and key in job.keys:
            yield Lease(key, job.id, job.token, job.fence, self.holds)
            return
        if (line := self._stood.get(key)) or key in self._paused:
            raise Locked(key, line[0] if line else None)
        job_id = f"lock-{uuid.uuid4()}"
        self._stand(job_id, (key,), {})
        token, fence = self._take(job_id)
        try:
            yield Lease(key, job_id, token, fence, self.holds)
        finally:
            if held := self.holds(job_id, token):
                self._leave(job_id, "succeeded")
                self._run_what_may()
        if not held:
            raise LeaseLost(key, fence)

    def _take(self, job_id: str) -> tuple[str, int]:
        token, fence, record = uuid.uuid4().hex, next(self._fences), self._records[job_id]
        attempt = int(record.get("attempt", 0)) + 1
        record |= {"state": "running", "token": token, "fence": str(fence), "attempt": str(attempt), "node": NODE}
        record |= {"started": now(), "taken": record.get("taken", now())}
        return token, fence

    def _run(self, job_id: str) -> None:
        """Step by step; where one fails for good, the rollback. A job to be held stays in its lanes."""
        record, spec = self._records[job_id], self.spec(job_id)
        record |= {"phase": "", "forgiven": record.get("attempt", "0")}
        if record.get("rollback") == "done" and "first" in spec:  # undone: from its first step
            record["class"], record["task"], _ = orders.advance(orders.laid(spec, spec["first"]))
            record["step"] = str(spec["first"])
        try:
            while (outcome := self._step(job_id)).kind == "succeeded":
                if not (step := orders.following(spec, int(record.get("step", 0)))):
                    break
                record["class"], record["task"], _ = orders.advance(step)
                record["value"] = outcome.detail
                _add(record, "step", "forgiven")
            state = self._undo(job_id, outcome) if outcome.kind == "failed" and record.get("undo") else outcome.kind
        except _Released:
            return
        except BaseException:
            self._leave(job_id, "failed")
            raise
        if state != "succeeded" and record.get("hold"):
            record |= {"state": "held", "error": outcome.detail}
            return
        self._leave(job_id, state, outcome.detail)
        self._tell(job_id, outcome)

    def _step(self, job_id: str) -> Outcome:
        """Attempts at one step, until one succeeds or none is left; its kind is succeeded or failed."""
        record, conflicts = self._records[job_id], 0
        while (outcome := self._attempt(job_id, *self._take(job_id))).kind in ("raised", "conflict"):
            most = outcome.most or int(record["limits"].split()[0])
            if outcome.kind == "conflict" and (conflicts := conflicts + 1) <= MAX_CONFLICTS:
                _add(record, "forgiven")
            elif outcome.kind == "conflict" or int(record["attempt"]) - int(record.get("forgiven", 0)) >= most:
                break
            self._counted["retries"] += 1
        return outcome if outcome.kind == "succeeded" else replace(outcome, kind="failed")

    def _undo(self, job_id: str, cause: Outcome) -> str:
        record = self._records[job_id]
        own = {"phase": "undone", "task": record["task"]}
        record |= {"phase": "rollback", "error": cause.detail, "task": record["undo"].split("\n")[0]}
        outcome = self._attempt(job_id, *self._take(job_id))
        done = outcome.kind == "succeeded"
        record |= own | ({"rollback": "done"} if done else {"rollback": "failed", "fault": outcome.detail})
        self._counted["faults"] += not done
        return "rolled_back" if done else "double_fault"

    def _attempt(self, job_id: str, token: str, fence: int) -> Outcome:
        record, eager = self._records[job_id], self._app.conf.task_always_eager
        names = ("keys", "task", "spec", "attempt", "losses", "fence", "limits", "unite", "class", "tell")
        more = [record.get(name) for name in ("phase", "step", "value", "forgiven", "error")]
        work = work_of([job_id, *(record.get(name) for name in names), more], token)
        mark = working.set(CurrentJob(job_id, work.keys, token, fence, work.attempt, self, undoing_of(work)))
        self._app.conf.task_always_eager = True
        try:
            outcome = self._tracers.attempt(work, 0.0)
        finally:
            working.reset(mark)
            self._app.conf.task_always_eager = eager
        if isinstance(outcome.error, KeyboardInterrupt):
            raise outcome.error
        if not self.holds(job_id, token):
            raise _Released
        return at_once(self, work, outcome) if outcome.kind == "parked" else outcome

    def _tell(self, job_id: str, outcome: Outcome) -> None:
        before = self._app.conf.task_always_eager
        self._app.conf.task_always_eager = True
        try:
            spec = self.spec(job_id) | {"ignore_result": True}
            send(self._app, self.job(job_id), spec, outcome.error, outcome.traceback)
        finally:
            self._app.conf.task_always_eager = before


class _Released(Exception):
    """What the job at work says is refused from here."""


def _add(record: dict[str, str], *names: str) -> None:
    record |= {name: str(int(record.get(name, 0)) + 1) for name in names}
