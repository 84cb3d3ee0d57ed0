"""Lanes in memory: what a `Coordinator` asks of its lanes, answered without Redis."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from kombu.utils.json import dumps

from coordinator.errors import InvalidJob, LaneFull, UnknownJob, WaitTimeout
from coordinator.execution.attempt import Outcome
from coordinator.in_place import melting
from coordinator.in_place.attempts import Attempts, leave_rollback, spec_of
from coordinator.in_place.grabbing import grabbing, may_retry
from coordinator.in_place.lines import Record
from coordinator.jobs import validation
from coordinator.jobs.record import TERMINAL, Job, parse
from coordinator.jobs.request import JobRequest
from coordinator.jobs.spec import Spec
from coordinator.jobs.states import Answer, End, LaneState, State
from coordinator.jobs.submission import Submission
from coordinator.lanes.lane import Lane
from coordinator.lanes.lanes import ENDS, Lanes, check_limit

_STATES = ("waiting", "ready", "running", "scheduled", "collected", "retrying", "parked", "held", "rolling_back")


class Memory(Lanes):
    """`rules` say who may start; `_settle` runs whoever does."""

    def __init__(self) -> None:
        self.rules = Attempts()
        self._submitted_ids: list[str] = []

    @abstractmethod
    def _settle(self) -> None:
        """Run what is ready, until nothing is."""

    @property
    def submitted(self) -> list[Job]:
        """The submitted jobs as they are now, in that order, without those that were skipped, melted or given twice."""
        return [self.job(job_id) for job_id in self._submitted_ids]

    def submit(self, request: JobRequest) -> Submission:
        return self.submit_many([request])[0]

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        """All are put in line before the first of them runs."""
        asked = list(requests)
        answers = [grabbing(self.rules, request, self._put_in_line) for request in asked]
        self._settle()
        for answer in answers:
            if isinstance(answer, LaneFull):
                answer.job_ids = tuple(request.id for request in asked)
                raise answer
        return [answer for answer in answers if isinstance(answer, Submission)]

    def _put_in_line(self, request: JobRequest) -> Submission | LaneFull:
        rules, job_id, record = self.rules, request.id, _record_of(request)
        if job_id in rules.records:
            return self._answer(request, "duplicate", rules.records[job_id].get("alias", job_id))
        if busy := next((key for key in request.skip_keys if rules.is_busy(key)), None):
            first, holder = (next(iter(rules.line(key)), "") for key in (request.keys[0], busy))
            return self._answer(request, "skipped", first or job_id, holder)
        if request.when_busy == "defer" and (other := rules.alike(record["melt"])):
            melting.unite(rules.records[other], record)
            rules.records[job_id] = {"alias": other}
            return self._answer(request, "coalesced", other, other)
        for key in request.keys if request.room != "" else ():
            if (waiting := rules.waiting(key)) >= int(request.room):
                return LaneFull(key, waiting, job_id)
        if request.when_busy == "replace":
            for other in rules.replaced(request.keys):
                self._end(other, f"replaced by {job_id}", "the lane")
        self._submitted_ids.append(job_id)
        if (start := rules.instant(request.not_before)) > rules.now():
            rules.write(job_id, record, "scheduled")
            rules.score(job_id)
            rules.delayed[job_id] = start
            return Submission(job_id, "queued", -1)
        rules.write(job_id, record, "waiting")
        rules.score(job_id)
        rules.join(job_id)
        if rules.records[job_id]["state"] == "ready":
            return Submission(job_id, "started", 0)
        return self._answer(request, "queued", job_id)

    def _answer(self, request: JobRequest, outcome: Answer, placed: str, of: str = "") -> Submission:
        return Submission(request.id, outcome, self.rules.place(placed, request.keys[0]), of=of)

    # Sorters

    def collect(self, request: JobRequest, fields: Mapping[str, str]) -> bool:
        """Hold an order until `flush`; False: its id is taken."""
        if request.id in self.rules.records:
            return False
        more = {"priority": str(request.priority), "not_before": str(self.rules.instant(request.not_before))}
        self.rules.write(request.id, {**_record_of(request), **more, **fields}, "collected")
        self._submitted_ids.append(request.id)
        self._settle()
        return True

    def collected(self) -> dict[str, list[str]]:
        """The ids that each sorter holds, in their order."""
        found: dict[str, list[str]] = {}
        held = ((job_id, record["sorter"]) for job_id, record in self.rules.jobs() if record["state"] == "collected")
        for job_id, sorter in sorted(held, key=lambda one: f"{one[1]}\0{one[0]}".encode()):
            found.setdefault(sorter.partition("\n")[0], []).append(job_id)
        return found

    def flush(self, *sorters: str) -> None:
        """Put in line what these sorters hold, or all."""
        rules = self.rules
        for name, ids in self.collected().items():
            for job_id in ids if name in sorters or not sorters else ():
                rules.score(job_id)
                due = int(rules.records[job_id]["not_before"])
                if due > rules.now():
                    rules.records[job_id]["state"] = "scheduled"
                    rules.delayed[job_id] = due
                else:
                    rules.join(job_id)
        self._settle()

    # Operators

    def cancel(self, job_id: str, *, why: str = "", by: str = "") -> State:
        """A job at work goes on to the end of its attempt, which counts no more."""
        self._end(job_id, why, by)
        self._settle()
        return self.job(job_id).state

    def _end(self, job_id: str, why: str, by: str) -> None:
        job = self.job(job_id)
        record = self.rules.records[job.id]
        error = dumps({"type": "Cancelled", "message": why, "by": by})
        if job.state == "running" and "class" in record:
            if "stop" not in record:
                record |= {"stop": "cancelled", "error": error}
        elif job.state == "rolling_back":
            unbegun = record["state"] == "ready" and record["back"] == "0"
            if unbegun and record["ends"] != "cancelled":
                self.rules.drop(job.id)
                self.rules.undone(job.id, Outcome("failed", error), to_hold=False)
        elif not job.over:
            self.rules.give_up(job.id, "cancelled", error=error)

    def retry(self, job_id: str, *, to: End = "back", why: str = "", by: str = "") -> State:
        validation.one_of("to", to, ENDS)
        rules, job = self.rules, self.job(job_id)
        record = rules.records[job.id]
        if job.state == "held":
            rules.again(job.id, rules.act(why, by))
            record["taken"] = str(rules.now())
            rules.put_back(job.id)
        elif job.over and job.state != "succeeded" and "class" in record and may_retry(rules, job.id):
            rules.again(job.id, rules.act(why, by))
            for name in ("taken", "ended", "token"):
                record.pop(name, None)
            rules.score(job.id, to)
            rules.join(job.id)
        self._settle()
        return self.job(job_id).state

    def move(
        self, job_id: str, *, priority: int | None = None, to: End = "back", why: str = "", by: str = "",
        token: str | None = None,
    ) -> State:  # fmt: skip
        number = None if priority is None else validation.priority(priority)
        validation.one_of("to", to, ENDS)
        rules, job = self.rules, self.job(job_id)
        record = rules.records[job.id]
        if token and record.get("move") == token:
            self._settle()
            return self.job(job_id).state
        if job.state != "waiting":
            raise InvalidJob(f"job {job.id} is {job.state}: only one that waits can be moved")
        record |= {"moved": dumps(rules.act(why, by)), "move": token or ""}
        if number is not None:
            record["priority"] = str(number)
        rules.score(job.id, to)
        rules.enter(job.id)
        for key in job.keys:
            rules.admit(key)
        self._settle()
        return self.job(job_id).state

    def release(self, key: str, *, why: str, by: str = "", holder: str = "") -> str | None:
        """From now on the fixture refuses what its holder says."""
        rules, line = self.rules, self.rules.line(validation.check_keys(key)[0])
        held = [job_id for job_id in line if job_id == holder] if holder else line[:1]
        if not held or "taken" not in rules.records[held[0]]:
            return None
        job_id = held[0]
        if rules.records[job_id].get("phase") == "rollback":
            leave_rollback(rules.records[job_id])
            rules.records[job_id]["rollback"] = "failed"
        rules.leave(job_id, "cancelled", error=dumps({"type": "Released", "message": why, "by": by, "at": rules.now()}))
        self._settle()
        return job_id

    def pause(self, key: str, *, why: str = "", by: str = "") -> bool:
        (key,) = validation.check_keys(key)
        new = key not in self.rules.paused
        self.rules.paused[key] = self.rules.act(why, by)
        if new:
            self.rules.call_back(key)
        self._settle()
        return new

    def resume(self, key: str, *, why: str = "", by: str = "") -> bool:
        (key,) = validation.check_keys(key)
        paused = self.rules.paused.pop(key, None)
        if paused is not None:
            for job_id in self.rules.line(key)[:1]:
                self.rules.records[job_id] |= {"paused": dumps(paused), "resumed": dumps(self.rules.act(why, by))}
            self.rules.admit(key)
        self._settle()
        return paused is not None

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str = "") -> int:
        check_limit(limit)
        (key,) = validation.check_keys(key)
        before = self.rules.limit(key)
        self.rules.limits.pop(key, None)
        if limit != 1:
            self.rules.limits[key] = (limit, self.rules.act(why, by))
        if limit < before:
            self.rules.call_back(key)
        self.rules.admit(key)
        self._settle()
        return before

    # Reading

    def job(self, job_id: str) -> Job:
        record = self.rules.records.get(job_id)
        if record is None:
            raise UnknownJob(job_id)
        job_id = record.get("alias", job_id)
        fields = {name.encode(): value.encode() for name, value in self.rules.records[job_id].items()}
        return parse(job_id, fields)

    def spec(self, job_id: str) -> Spec:
        return spec_of(self.rules.records[self.job(job_id).id])

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Raises WaitTimeout at once: what is not over, or held, waits for its caller."""
        job = self.job(job_id)
        if not job.waited_for:
            raise WaitTimeout(job_id, job.state)
        return job

    def counts(self) -> dict[str, int]:
        """Nothing is lost here."""
        states = Counter(self.job(job_id).state for job_id, _ in self.rules.jobs())
        counted = {name: self.rules.counted[name] for name in ("retries", "losses", "faults")}
        return {"created": states.total(), **counted, **{state: states[state] for state in (*_STATES, *TERMINAL)}}

    def lane(self, key: str, most: int = 100) -> Lane:
        return self._lane(validation.check_keys(key)[0], most)

    def _lane(self, key: str, most: int) -> Lane:
        line = self.rules.line(key)
        first = self.rules.records[line[0]] if line else {}
        state, node = cast(LaneState, first.get("state", "empty")), first.get("node")
        holder = (f"{line[0]} on {node}" if node else line[0]) if state == "running" else None
        limit, act = self.rules.limits.get(key, (1, None))
        return Lane(key, tuple(line[:most]), len(line), state, holder, self.rules.paused.get(key), limit, act)

    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        found = (self._lane(key, 1) for key in sorted(self.rules.keys()) if key.startswith(prefix) and key > after)
        return [lane for lane in found if state in (None, lane.state)][:most]

    def tasks_of(self, app: str) -> set[str] | None:
        return None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        if self.rules.records[job_id].get("token") == token:
            self.rules.records[job_id]["progress"] = f"{done}/{total}"

    def holds(self, job_id: str, token: str) -> bool:
        return self.rules.holds(job_id, token)


def _record_of(request: JobRequest) -> Record:
    given = [str(part) for part in request.fields]
    return dict(zip(given[::2], given[1::2], strict=True)) | {"keys": "\n".join(request.keys)}
