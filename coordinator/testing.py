"""For users' own suites: jobs run in place, at submit, without Redis. A plugin of pytest; its fixture is there at once.

    def test_an_order_is_shipped(coordinator_jobs):
        jobs = coordinator_jobs(shop.coordinator)
        shop.order(42)
        assert [job.key for job in jobs.submitted] == ["order/42"]
        assert shop.coordinator.job(jobs.submitted[0].id).state == "succeeded"

What holds on a fleet holds here: one job at a time on a key, in order. So a job that is submitted to a key whose job is
at work (or whose lock is held) runs once that is over, is skipped, or melts, as `when_busy` says. Attempts follow each
other at once; links and error links are called in place. A task's error is the job's, not the submitter's. Delays,
priorities and result backends are left out. All of it belongs in one thread.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from celery import Celery
from kombu.utils.json import dumps, loads

from coordinator import orders
from coordinator.attempt import Outcome, Tracers
from coordinator.checks import check_keys
from coordinator.current import CurrentJob, current_job, working
from coordinator.drafts import Draft
from coordinator.errors import LeaseLost, Locked, SettingsError, UnknownJob, WaitTimeout
from coordinator.extension import Coordinator
from coordinator.jobs import Job, Submission, parse
from coordinator.lanes import Lane, Lanes
from coordinator.locks import Lease
from coordinator.notices import send
from coordinator.parked import at_once
from coordinator.runner import undoing_of
from coordinator.store import milliseconds
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
        return in_place

    return begin


class InPlace(Lanes):
    """Lanes and locks in memory. A record has the fields that it has in Redis."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._tracers = Tracers(app, NODE)
        self._fences = count(1)
        self._records: dict[str, dict[str, str]] = {}
        self._stood: dict[str, list[str]] = {}
        self._asked: list[str] = []

    @property
    def submitted(self) -> list[Job]:
        """What was submitted, as it is now, in that order; not what was skipped, melted or given twice."""
        return [self.job(job_id) for job_id in self._asked]

    def submit(self, draft: Draft) -> Submission:
        given = [part if isinstance(part, str) else str(part) for part in draft.fields]
        record = dict(zip(given[::2], given[1::2], strict=True))
        if draft.id in self._records:
            return Submission(draft.id, "duplicate", -1)
        busy = any(self._stood.get(key) for key in draft.keys)
        if busy and draft.when_busy == "skip":
            return Submission(draft.id, "skipped", -1)
        if busy and draft.when_busy == "defer" and (other := self._like(draft.keys[0], record)):
            self._melt(other, draft.id, record)
            return Submission(draft.id, "coalesced", self._stood[draft.keys[0]].index(other))
        self._stand(draft.id, draft.keys, record)
        self._asked.append(draft.id)
        position = max(self._stood[key].index(draft.id) for key in draft.keys)
        self._run_what_may()
        return Submission(draft.id, "queued" if position else "started", position)

    def submit_many(self, drafts: Iterable[Draft]) -> list[Submission]:
        return [self.submit(draft) for draft in drafts]

    def job(self, job_id: str) -> Job:
        record = self._records.get(job_id)
        if record is None:
            raise UnknownJob(job_id)
        job_id = record.get("alias", job_id)
        fields = {name.encode(): value.encode() for name, value in self._records[job_id].items()}
        return parse(job_id, fields)

    def spec(self, job_id: str) -> dict[str, Any]:
        spec: dict[str, Any] = loads(self._records[self.job(job_id).id]["spec"])
        return spec

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Raises WaitTimeout at once: what is not over, or held, waits for its caller."""
        job = self.job(job_id)
        if not job.waited_for:
            raise WaitTimeout(job_id, job.state)
        return job

    def cancel(self, job_id: str, *, why: str = "", by: str = "") -> str:
        job = self.job(job_id)
        if job.state in ("waiting", "held"):
            self._leave(job.id, "cancelled", dumps({"type": "Cancelled", "message": why, "by": by}))
            self._run_what_may()
        return self.job(job_id).state

    def retry(self, job_id: str, *, why: str = "", by: str = "") -> str:
        """A held job goes on; what is over stays so."""
        if (job := self.job(job_id)).state == "held":
            self._run(job.id)
            self._run_what_may()
        return self.job(job_id).state

    def lane(self, key: str, most: int = 100) -> Lane:
        line = self._stood.get(key, [])
        state = self._records[line[0]]["state"] if line else "empty"
        return Lane(key, tuple(line[:most]), len(line), state, line[0] if state == "running" else None)

    def lanes(self, prefix: str = "", state: str | None = None, most: int = 1000) -> list[Lane]:
        found = (self.lane(key, 1) for key in sorted(self._stood) if key.startswith(prefix) and self._stood[key])
        return [lane for lane in found if state in (None, lane.state)][:most]

    def tasks_of(self, app: str) -> set[str] | None:
        return None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        if self.holds(job_id, token):
            self._records[job_id]["progress"] = f"{done}/{total}"

    def holds(self, job_id: str, token: str) -> bool:
        record = self._records[job_id]
        return record["state"] == "running" and record["token"] == token

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> Iterator[Lease]:
        """Raises Locked at once where it is held: nobody could release it meanwhile."""
        (key,) = check_keys(name)
        job = current_job()
        if job and key in job.keys:
            yield Lease(key, job.id, job.token, job.fence, self.holds)
            return
        if line := self._stood.get(key):
            raise Locked(key, line[0])
        job_id = f"lock-{uuid.uuid4()}"
        self._stand(job_id, (key,), {})
        token, fence = self._take(job_id)
        try:
            yield Lease(key, job_id, token, fence, self.holds)
        finally:
            held = self.holds(job_id, token)
            self._leave(job_id, "succeeded")
            self._run_what_may()
        if not held:
            raise LeaseLost(key, fence)

    def _like(self, key: str, record: dict[str, str]) -> str | None:
        """A job in that line that the other may melt into: not begun, and the same."""
        alike = {"state": "waiting", "melt": record["melt"]}.items()
        return next((one for one in self._stood[key] if alike <= self._records[one].items()), None)

    def _melt(self, other: str, alias: str, record: dict[str, str]) -> None:
        self._records[alias] = {"alias": other}
        if "unite" in record:
            one, two = loads(self._records[other]["unite"]), loads(record["unite"])
            both = {name: sorted({*one[name], *two[name]}) if one[name] and two[name] else None for name in one}
            self._records[other]["unite"] = dumps(both)

    def _stand(self, job_id: str, keys: tuple[str, ...], record: dict[str, str]) -> None:
        at_work = {"state": "waiting", "keys": "\n".join(keys), "submitted": _now()}
        self._records[job_id] = record | at_work
        for key in keys:
            self._stood.setdefault(key, []).append(job_id)

    def _run_what_may(self) -> None:
        """Whoever stands in front in all its lines, until there is none."""
        while job_id := next((line[0] for line in self._stood.values() if line and self._may_run(line[0])), None):
            self._run(job_id)

    def _may_run(self, job_id: str) -> bool:
        record = self._records[job_id]
        return record["state"] == "waiting" and all(self._stood[key][0] == job_id for key in record["keys"].split("\n"))

    def _take(self, job_id: str) -> tuple[str, int]:
        token, fence, record = uuid.uuid4().hex, next(self._fences), self._records[job_id]
        attempt = int(record.get("attempt", 0)) + 1
        record |= {"state": "running", "token": token, "fence": str(fence), "attempt": str(attempt), "node": NODE}
        record |= {"started": _now(), "taken": record.get("taken", _now())}
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
        return outcome if outcome.kind == "succeeded" else replace(outcome, kind="failed")

    def _undo(self, job_id: str, cause: Outcome) -> str:
        record = self._records[job_id]
        own = {"phase": "undone", "task": record["task"]}
        record |= {"phase": "rollback", "error": cause.detail, "task": record["undo"].split("\n")[0]}
        outcome = self._attempt(job_id, *self._take(job_id))
        done = outcome.kind == "succeeded"
        record |= own | ({"rollback": "done"} if done else {"rollback": "failed", "fault": outcome.detail})
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
        return at_once(self, work, outcome) if outcome.kind == "parked" else outcome

    def _leave(self, job_id: str, state: str, detail: str = "") -> None:
        record = self._records[job_id]
        record |= {"state": state, "ended": _now()}
        if detail:
            record["result" if state == "succeeded" else "error"] = detail
        for key in record["keys"].split("\n"):
            self._stood[key].remove(job_id)

    def _tell(self, job_id: str, outcome: Outcome) -> None:
        before = self._app.conf.task_always_eager
        self._app.conf.task_always_eager = True
        try:
            spec = self.spec(job_id) | {"ignore_result": True}
            send(self._app, self.job(job_id), spec, outcome.error, outcome.traceback)
        finally:
            self._app.conf.task_always_eager = before


def _add(record: dict[str, str], *names: str) -> None:
    record |= {name: str(int(record.get(name, 0)) + 1) for name in names}


def _now() -> str:
    return str(milliseconds(time.time()))
