"""Lanes in memory, for `coordinator.testing`: who stands where, and an operator's hand on it.

A record has the fields that it has in Redis. Whoever may run is run at once, by `_run` of the class below this one.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kombu.utils.json import dumps, loads

from coordinator import causes
from coordinator.checks import check_keys
from coordinator.drafts import Draft
from coordinator.errors import InvalidJob, LaneFull, UnknownJob, WaitTimeout
from coordinator.jobs import TERMINAL, Job, Submission, parse
from coordinator.lanes import Lanes
from coordinator.line import Lane
from coordinator.store import milliseconds

_APART = ("scheduled", "collected", "retrying", "parked", "held", "rolling_back")
_STATES = ("waiting", "ready", "running", *_APART, *TERMINAL)


class Memory(Lanes):
    def __init__(self) -> None:
        self._records: dict[str, dict[str, str]] = {}
        self._stood: dict[str, list[str]] = {}
        self._asked: list[str] = []
        self._paused: dict[str, dict[str, Any]] = {}
        self._limits: dict[str, tuple[int, dict[str, Any]]] = {}
        self._counted: Counter[str] = Counter()

    @abstractmethod
    def _run(self, job_id: str) -> None:
        """Until it is over or held."""

    @property
    def submitted(self) -> list[Job]:
        """What was submitted, as it is now, in that order; not what was skipped, melted or given twice."""
        return [self.job(job_id) for job_id in self._asked]

    def submit(self, draft: Draft) -> Submission:
        record = _record(draft)
        if draft.id in self._records:
            return Submission(draft.id, "duplicate", -1)
        busy = any(self._stood.get(key) or key in self._paused for key in draft.keys)
        if busy and draft.when_busy == "skip":
            return Submission(draft.id, "skipped", -1)
        if busy and draft.when_busy == "defer" and (other := self._like(draft.keys[0], record)):
            self._melt(other, draft.id, record)
            return Submission(draft.id, "coalesced", self._stood[draft.keys[0]].index(other))
        for key in draft.keys if draft.room != "" else ():
            waiting = sum(self._records[one]["state"] == "waiting" for one in self._stood.get(key, ()))
            if waiting >= int(draft.room):
                raise LaneFull(key, waiting, draft.id)
        self._stand(draft.id, draft.keys, record)
        self._asked.append(draft.id)
        position = max(self._stood[key].index(draft.id) for key in draft.keys)
        starts = self._may_run(draft.id)
        self._run_what_may()
        return Submission(draft.id, "started" if starts else "queued", position)

    def submit_many(self, drafts: Iterable[Draft]) -> list[Submission]:
        return [self.submit(draft) for draft in drafts]

    def collect(self, draft: Draft, fields: Mapping[str, str]) -> bool:
        """Hold an order until `flush`; False: its id is taken."""
        if draft.id in self._records:
            return False
        self._records[draft.id] = {**_record(draft), **fields, "state": "collected", "submitted": now()}
        self._records[draft.id]["keys"] = "\n".join(draft.keys)
        self._asked.append(draft.id)
        return True

    def collected(self) -> dict[str, list[str]]:
        """What each sorter holds, sorted."""
        found: dict[str, list[str]] = {}
        held = (one for one in self._records.items() if one[1].get("state") == "collected")
        for job_id, record in sorted(held, key=lambda one: (f"{one[1]['sorter']}\0{one[0]}").encode()):
            found.setdefault(record["sorter"].partition("\n")[0], []).append(job_id)
        return found

    def flush(self, *sorters: str) -> None:
        """Put in line what these sorters hold, or all."""
        for name, ids in self.collected().items():
            for job_id in ids if name in sorters or not sorters else ():
                record = self._records[job_id]
                self._stand(job_id, tuple(record["keys"].split("\n")), record)
        self._run_what_may()

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
        """A job at work goes on."""
        job = self.job(job_id)
        if job.state in ("waiting", "held", "collected"):
            self._leave(job.id, "cancelled", dumps({"type": "Cancelled", "message": why, "by": by}))
            self._run_what_may()
        return self.job(job_id).state

    def retry(self, job_id: str, *, to: str = "back", why: str = "", by: str = "") -> str:
        job = self.job(job_id)
        if job.state == "held" or (job.over and job.state != "succeeded"):
            self._records[job.id]["retried"] = dumps(_act(why, by))
            if job.over:
                self._stand(job.id, job.keys, self._records[job.id])
                self._place(job, to)
            else:
                self._run(job.id)
            self._run_what_may()
        return self.job(job_id).state

    def release(self, key: str, *, why: str, by: str = "", holder: str = "") -> str | None:
        """What its holder says from now on is refused."""
        line = self._stood.get(check_keys(key)[0], [])
        if not line or "taken" not in self._records[line[0]] or holder not in ("", line[0]):
            return None
        job_id = line[0]
        self._leave(job_id, "cancelled", dumps({"type": "Released", "message": why, "by": by, "at": int(now())}))
        self._run_what_may()
        return job_id

    def pause(self, key: str, *, why: str = "", by: str = "") -> bool:
        (key,) = check_keys(key)
        new = key not in self._paused
        self._paused[key] = _act(why, by)
        return new

    def resume(self, key: str, *, why: str = "", by: str = "") -> bool:
        (key,) = check_keys(key)
        paused = self._paused.pop(key, None)
        if paused is not None and (line := self._stood.get(key)):
            self._records[line[0]] |= {"paused": dumps(paused), "resumed": dumps(_act(why, by))}
            self._run_what_may()
        return paused is not None

    def move(
        self, job_id: str, *, priority: int | None = None, to: str = "back", why: str = "", by: str = "",
        token: str | None = None,
    ) -> str:  # fmt: skip
        """To the back or the front of those that wait; priorities are left out, and no answer is ever lost."""
        job = self.job(job_id)
        if job.state != "waiting":
            raise InvalidJob(f"job {job.id} is {job.state}: only one that waits can be moved")
        self._records[job.id]["moved"] = dumps(_act(why, by))
        self._place(job, to)
        self._run_what_may()
        return self.job(job_id).state

    def _place(self, job: Job, to: str) -> None:
        for key in job.keys:
            line = self._stood[key]
            line.remove(job.id)
            begun = sum("taken" in self._records[one] and one != job.id for one in line)
            line.insert(begun if to == "front" else len(line), job.id)

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str = "") -> int:
        """At 0 nothing starts; else, in place, one job is at work at a time all the same."""
        (key,) = check_keys(key)
        before, _ = self._limits.pop(key, (1, {}))
        if limit != 1:
            self._limits[key] = (limit, _act(why, by))
        self._run_what_may()
        return before

    def counts(self) -> dict[str, int]:
        """Locks in plain code are no jobs; nothing is lost here."""
        states = Counter(self.job(one).state for one, record in self._records.items() if "spec" in record)
        counted = {name: self._counted[name] for name in ("retries", "losses", "faults")}
        return {"created": states.total(), **counted, **{state: states[state] for state in _STATES}}

    def why(self, job_id: str) -> list[str]:
        return causes.why(_Look(self), job_id)

    def field(self, job_id: str, name: str) -> str:
        return self._records[job_id].get(name, "")

    def lane(self, key: str, most: int = 100) -> Lane:
        line = self._stood.get(key, [])
        state = self._records[line[0]]["state"] if line else "empty"
        holder = line[0] if state == "running" else None
        limit, who = self._limits.get(key, (1, None))
        return Lane(key, tuple(line[:most]), len(line), state, holder, self._paused.get(key), limit, who)

    def lanes(self, prefix: str = "", state: str | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        names = {*self._paused, *self._limits, *(key for key, line in self._stood.items() if line)}
        found = (self.lane(key, 1) for key in sorted(names) if key.startswith(prefix) and key > after)
        return [lane for lane in found if state in (None, lane.state)][:most]

    def tasks_of(self, app: str) -> set[str] | None:
        return None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        if self.holds(job_id, token):
            self._records[job_id]["progress"] = f"{done}/{total}"

    def holds(self, job_id: str, token: str) -> bool:
        record = self._records[job_id]
        return record["state"] == "running" and record["token"] == token

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
        at_work = {"state": "waiting", "keys": "\n".join(keys), "submitted": now()}
        self._records[job_id] = record | at_work
        for key in keys:
            self._stood.setdefault(key, []).append(job_id)

    def _run_what_may(self) -> None:
        """Whoever stands in front in all its lines, until there is none."""
        while job_id := next((line[0] for line in self._stood.values() if line and self._may_run(line[0])), None):
            self._run(job_id)

    def _may_run(self, job_id: str) -> bool:
        record = self._records[job_id]
        keys = record["keys"].split("\n")
        halted = any(key in self._paused or self._limits.get(key, (1,))[0] == 0 for key in keys)
        return record["state"] == "waiting" and not halted and all(self._stood[key][0] == job_id for key in keys)

    def _leave(self, job_id: str, state: str, detail: str = "") -> None:
        record = self._records[job_id]
        record |= {"state": state, "ended": now()}
        if detail:
            record["result" if state == "succeeded" else "error"] = detail
        for key in record["keys"].split("\n"):
            if job_id in self._stood.get(key, ()):
                self._stood[key].remove(job_id)


class _Look(causes.Look):
    """No node is asked, and nothing waits for an instant."""

    def __init__(self, lanes: Memory) -> None:
        self.lanes = self.memory = lanes
        self.now = time.time()

    def _alive(self, job: Job) -> bool:
        return True

    def _collected(self, job: Job) -> causes.Found:
        name = self.memory.field(job.id, "sorter").partition("\n")[0]
        return [f"job {job.id} is held by the sorter {name!r} until the test flushes it"], None

    def _rolling_back(self, job: Job) -> causes.Found:
        return self._running(job, "is rolled back")

    def _fields(self, job: Job, *names: str) -> list[str]:
        return [self.memory.field(job.id, name) for name in names]


def _record(draft: Draft) -> dict[str, str]:
    given = [part if isinstance(part, str) else str(part) for part in draft.fields]
    return dict(zip(given[::2], given[1::2], strict=True))


def _act(why: str, by: str) -> dict[str, Any]:
    return {"why": why, "by": by, "at": int(now())}


def now() -> str:
    """As records have it."""
    return str(milliseconds(time.time()))
