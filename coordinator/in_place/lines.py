"""Lines in memory: who stands where, whose turn it is, what is ready. The rules of a lane, without Redis.

A record has the fields that Redis keeps of a job; one without a `class` is a lock in plain code. In a line stand first
the jobs that were started, by their ids. Behind them stand those that wait: a greater priority first, then who came
first. A job has the same score in all its lines.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from coordinator.in_place.instances import Instances
from coordinator.store.times import milliseconds
from coordinator.store.values import Act
from coordinator.store.wire import Arg

Record = dict[str, str]
_WORTH, _FRONT = 2**20, 2**53  # as functions/rules/ready.lua has it


class Lines:
    """`ready`: in the order in which they are taken. `delayed`: when each is due (ms). `owed`: ends to be told."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.paused: dict[str, Act] = {}
        self.limits: dict[str, tuple[int, Act]] = {}
        self.ready: list[str] = []
        self.delayed: dict[str, int] = {}
        self.owed: list[str] = []
        self.counted: Counter[str] = Counter()
        self.instances = Instances()
        self._lines: dict[str, list[str]] = {}
        self._scores: dict[str, tuple[int, int]] = {}
        self._melts: dict[str, str] = {}
        self._turns: dict[str, float] = {}
        self._backs, self._fronts = count(1), count(-1, -1)

    def now(self) -> int:
        return milliseconds(time.time())

    def instant(self, given: Arg) -> int:
        """When a job may start, given as to the step job_submit."""
        text = str(given)
        return self.now() + int(text) if text.startswith("+") else int(text)

    def act(self, why: str, by: str) -> Act:
        return {"why": why, "by": by, "at": self.now()}

    # Places in line

    def line(self, key: str) -> list[str]:
        return self._lines.get(key, [])

    def keys(self) -> set[str]:
        """The lanes that are not empty, or paused, or have a limit of their own."""
        return {*self.paused, *self.limits, *(key for key, line in self._lines.items() if line)}

    def place(self, job_id: str, key: str) -> int:
        """0 = in front, -1 = not in line."""
        return self.line(key).index(job_id) if job_id in self.line(key) else -1

    def limit(self, key: str) -> int:
        return self.limits[key][0] if key in self.limits else 1

    def is_busy(self, key: str) -> bool:
        """Would one more wait?"""
        return key in self.paused or len(self.line(key)) >= self.limit(key)

    def replaced(self, keys: Iterable[str]) -> list[str]:
        """The jobs that a job of these keys replaces: those at work, and those that wait to replace them."""
        jobs = ((job_id, self.records[job_id]) for key in keys for job_id in self.line(key))
        found = (one for one, record in jobs if "class" in record and _gives_way(record))
        return list(dict.fromkeys(found))

    def waiting(self, key: str) -> int:
        return sum(self.records[one]["state"] == "waiting" for one in self.line(key))

    def alike(self, melt: str) -> str | None:
        """The job that a submit with this `melt` may melt into: the same, and not begun."""
        return self._melts.get(melt)

    # Coming

    def write(self, job_id: str, record: Record, state: str) -> None:
        self.records[job_id] = record | {"state": state, "submitted": str(self.now())}
        if "melt" in record:
            self._melts[record["melt"]] = job_id

    def score(self, job_id: str, to: str = "back") -> None:
        """The back or the front of those of its priority."""
        number = next(self._fronts if to == "front" else self._backs)
        self._scores[job_id] = (-int(self.records[job_id].get("priority", 0)), number)

    def enter(self, job_id: str) -> None:
        """Into all its lines, by its score."""
        self.records[job_id]["state"] = "waiting"
        self._stand(job_id)

    def join(self, job_id: str) -> None:
        """Into its lines, and on its way where it may start."""
        self.enter(job_id)
        self._admit_one(job_id)

    def join_due(self) -> None:
        """No time passes in place: what is delayed is due."""
        for job_id in sorted(self.delayed, key=lambda one: (self.delayed[one], one)):
            del self.delayed[job_id]
            self.join(job_id)

    def _stand(self, job_id: str) -> None:
        for key in keys_of(self.records[job_id]):
            line = self._lines.setdefault(key, [])
            if job_id in line:
                line.remove(job_id)
            insort(line, job_id, key=self._order)

    def _order(self, job_id: str) -> tuple[bool, int, int, str]:
        if self.records[job_id]["state"] == "waiting":
            return (True, *self._scores[job_id], "")
        return (False, 0, 0, job_id)

    # Turns

    def admit(self, key: str) -> None:
        """Make ready whoever may start in this lane."""
        for job_id in self.line(key)[: self.limit(key)]:
            self._admit_one(job_id)

    def _admit_one(self, job_id: str) -> None:
        if self.may_start(job_id):
            self.begin(job_id, "ready")
            self._make_ready(job_id, -_WORTH * int(self.records[job_id].get("priority", 0)))

    def may_start(self, job_id: str) -> bool:
        """It waits, and in each of its lanes fewer stand before it than may run at once."""
        record = self.records[job_id]
        return record["state"] == "waiting" and all(self._lets(key, job_id) for key in keys_of(record))

    def _lets(self, key: str, job_id: str) -> bool:
        before = self.line(key)[: self.line(key).index(job_id)]
        alone = any("weight" in self.records[one] for one in before) or (before and "weight" in self.records[job_id])
        return key not in self.paused and len(before) < self.limit(key) and not alone

    def begin(self, job_id: str, state: str) -> None:
        """From here nobody overtakes it."""
        self.records[job_id]["state"] = state
        self._stand(job_id)

    def put_back(self, job_id: str) -> None:
        """It was started already and goes on before all that were not."""
        self.drop(job_id)
        self.records[job_id]["state"] = "ready"
        self._make_ready(job_id, -_FRONT)

    def _make_ready(self, job_id: str, before: float) -> None:
        """By priority, and in the sequence in which they became ready."""
        self._turns[job_id] = before + next(self._backs)
        insort(self.ready, job_id, key=self._turns.__getitem__)

    def drop(self, job_id: str) -> None:
        """It is not to be taken any more."""
        if job_id in self.ready:
            self.ready.remove(job_id)

    def call_back(self, key: str) -> None:
        """Jobs of this lane that are ready and were never taken wait again."""
        for job_id in [one for one in self.line(key) if one in self.ready and "taken" not in self.records[one]]:
            self.ready.remove(job_id)
            self.enter(job_id)
            for other in keys_of(self.records[job_id]):
                self.admit(other)

    def take(self) -> str | None:
        """The next ready job. One that was started before a limit was lowered waits for a free place."""
        for job_id in list(self.ready):
            self.ready.remove(job_id)
            if all(self._running(key) < max(1, self.limit(key)) for key in keys_of(self.records[job_id])):
                self._unmelt(job_id)
                return job_id
            self._turns[job_id] = max([self._turns[job_id], *(self._turns[one] + 1 for one in self.ready[-1:])])
            self.ready.append(job_id)
        return None

    def _running(self, key: str) -> int:
        return sum(self.records[one]["state"] == "running" for one in self.line(key))

    # Going

    def leave(self, job_id: str, state: str, **fields: str) -> None:
        """It is over; whoever stands behind it goes on."""
        self._unmelt(job_id)
        self.delayed.pop(job_id, None)
        self.drop(job_id)
        record = self.records[job_id]
        record |= {"state": state, "ended": str(self.now())} | fields
        if "tell" in record:
            self.owed.append(job_id)
        if "grab" in record:
            well = state == "succeeded"
            value = record.get("result" if well else "error", "")
            self.instances.end(record["keys"], job_id, "complete" if well else "failed", value, record["ended"])
        for key in keys_of(record):
            if job_id in self.line(key):
                self._lines[key].remove(job_id)
        for key in keys_of(record):
            self.admit(key)

    def _unmelt(self, job_id: str) -> None:
        """Nothing melts into it any more."""
        if melt := self.records[job_id].pop("melt", ""):
            self._melts.pop(melt, None)

    def jobs(self) -> Iterator[tuple[str, Record]]:
        """Neither locks nor ids that melted."""
        return ((job_id, record) for job_id, record in self.records.items() if "class" in record)


def _gives_way(record: Record) -> bool:
    return record["state"] != "waiting" or "replaces" in record


def keys_of(record: Record) -> list[str]:
    return record["keys"].split("\n")
