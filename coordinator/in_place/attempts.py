"""Attempts in memory: how a job is started, and what follows when an attempt is over."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from itertools import count

from kombu.utils.json import dumps, loads

from coordinator.execution.attempt import Outcome
from coordinator.execution.claim import Claim, claim_of
from coordinator.in_place.instances import about
from coordinator.in_place.lines import Lines, Record
from coordinator.jobs import chain
from coordinator.jobs.spec import Spec
from coordinator.store.values import Act

NODE = "in-place"
MAX_CONFLICTS = 20

_CLAIMED = ("keys", "task", "spec", "attempt", "losses", "fence", "limits", "unite", "class", "tell")
_CLAIMED_TOO = ("phase", "step", "value", "forgiven", "error", "back", "undid", "values")


class Attempts(Lines):
    """`parked`: jobs that wait for their sub-results, and those that did and are over since."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: set[str] = set()
        self._fences = count(1)

    def holds(self, job_id: str, token: str) -> bool:
        record = self.records[job_id]
        return record["state"] == "running" and record["token"] == token

    def start(self, job_id: str) -> None:
        """A taking: a new token, a greater fence, one more attempt."""
        record, now = self.records[job_id], str(self.now())
        self.begin(job_id, "running")
        record |= {"token": uuid.uuid4().hex, "fence": str(next(self._fences)), "started": now}
        record.setdefault("taken", now)
        _add(record, "attempt")
        if "class" in record:
            record["node"] = NODE
        if "grab" in record:
            who = about(job_id, NODE, os.getpid())
            self.instances.take(record["keys"], job_id, who, record["fence"], now)

    def state_of(self, lane: str) -> str:
        """That of an instance."""
        grab = self.instances.kept.get(lane, {"state": ""})
        if grab["state"] != "running" or not grab["token"] or self.holds(grab["job"], grab["token"]):
            return grab["state"]
        return "abandoned"

    def claim(self, job_id: str) -> Claim:
        record = self.records[job_id]
        named = [record.get(name) for name in _CLAIMED]
        return claim_of([job_id, *named, [record.get(name) for name in _CLAIMED_TOO]], record["token"])

    def conclude(self, job_id: str, outcome: Outcome) -> None:
        """Let follow on an attempt: the end, the next step, another attempt, the rollback, or a wait."""
        record = self.records[job_id]
        record["token"] = ""
        if record.get("phase") == "rollback":
            self._undo_on(job_id, outcome)
        elif stop := record.pop("stop", ""):
            self.give_up(job_id, stop)
        elif outcome.kind == "succeeded":
            self._succeed(job_id, outcome.detail)
        elif outcome.kind == "parked":
            self._park(job_id, outcome.detail)
        elif _may_try_again(record, outcome):
            record["error"] = outcome.detail
            self.counted["retries"] += 1
            self.put_back(job_id)
        else:
            self.give_up(job_id, "failed", error=outcome.detail)

    def _park(self, job_id: str, handles: str) -> None:
        self.records[job_id] |= {"state": "parked", "handles": handles}
        self.parked.add(job_id)

    def _undo_on(self, job_id: str, outcome: Outcome) -> None:
        """A step of the rollback is over, or waits for its sub-results."""
        record = self.records[job_id]
        number = int(record["back"])
        step = chain.following(spec_of(record)["rollback"], number)
        if outcome.kind == "parked":
            self._park(job_id, outcome.detail)
        elif outcome.kind == "succeeded" and step is not None:
            kind, task, _ = chain.advance(step)
            record |= {"undid": outcome.detail, "back": str(number + 1), "class": kind, "task": task}
            self.put_back(job_id)
        else:
            self.undone(job_id, outcome)

    def _succeed(self, job_id: str, value: str) -> None:
        record = self.records[job_id]
        number = int(record.get("step", 0)) + 1
        if number < len(spec_of(record).get("steps", ())):
            record["value"] = value
            if "undo" in record:
                record["values"] = ",".join([*([record["values"]] if "values" in record else []), value])
            _add(record, "forgiven")
            _go_to(record, number)
            self.put_back(job_id)
        else:
            self.leave(job_id, "succeeded", result=value)

    def give_up(self, job_id: str, state: str, **fields: str) -> None:
        """It will not succeed. Where it was started and has a rollback, that runs first, once."""
        record = self.records[job_id]
        if "undo" not in record or "taken" not in record or record.get("phase") == "undone":
            self._end_or_hold(job_id, state, fields)
            return
        record |= {"phase": "rollback", "ends": "rolled_back" if state == "failed" else state, **fields}
        record["was"] = f"{record['task']}\n{record['class']}"
        record["task"], _, record["class"] = record["undo"].split("\n", 2)
        record["back"] = "0"
        self.put_back(job_id)

    def undone(self, job_id: str, outcome: Outcome, to_hold: bool = True) -> None:
        """The rollback is over. `to_hold`: an operator may be to decide."""
        record = self.records[job_id]
        ends = record["ends"]
        leave_rollback(record)
        if outcome.kind == "succeeded":
            self._end_or_hold(job_id, ends, {"rollback": "done"})
        else:
            self.counted["faults"] += 1
            state = "double_fault" if ends == "rolled_back" else ends
            ends_so = self._end_or_hold if to_hold else self._end
            ends_so(job_id, state, {"rollback": "failed", "fault": outcome.detail})

    def _end(self, job_id: str, state: str, fields: Mapping[str, str]) -> None:
        self.leave(job_id, state, **fields)

    def _end_or_hold(self, job_id: str, state: str, fields: Mapping[str, str]) -> None:
        """The end, unless an operator is to decide."""
        record = self.records[job_id]
        if "hold" in record and state != "cancelled":
            record |= {"state": "held", **fields}
        else:
            self.leave(job_id, state, **fields)

    def again(self, job_id: str, act: Act) -> None:
        """All its attempts are before it once more. A chain that was undone begins at its first step."""
        record = self.records[job_id]
        first = spec_of(record).get("first", 0)
        if record.get("rollback") == "done" and int(record.get("step", 0)) != first:
            _go_to(record, first)
            record.pop("value", None)
            record.pop("values", None)
        record |= {"forgiven": record.get("attempt", "0"), "phase": "", "retried": dumps(act)}
        for name in ("stop", "ends", "rollback", "fault", "conflicts"):
            record.pop(name, None)


def spec_of(record: Record) -> Spec:
    spec: Spec = loads(record.get("spec", "{}"))
    return spec


def leave_rollback(record: Record) -> None:
    """The rollback is over, well or not: the record names the job's own task again."""
    record["phase"] = "undone"
    for name in ("back", "undid"):
        record.pop(name, None)
    record["task"], record["class"] = record.pop("was").split("\n", 1)


def _go_to(record: Record, number: int) -> None:
    kind, task, limit = chain.advance(chain.laid(spec_of(record), number))
    limits = record["limits"].split(" ")
    limits[2] = str(limit)
    record |= {"class": kind, "task": task, "limits": " ".join(limits), "step": str(number)}


def _may_try_again(record: Record, outcome: Outcome) -> bool:
    if outcome.kind == "conflict":
        _add(record, "conflicts")
        if good := int(record["conflicts"]) <= MAX_CONFLICTS:
            _add(record, "forgiven")
        return good
    tries = int(record["attempt"]) - int(record.get("forgiven", 0))
    return outcome.kind == "raised" and tries < (outcome.most or int(record["limits"].split(" ")[0]))


def _add(record: Record, *names: str) -> None:
    record |= {name: str(int(record.get(name, 0)) + 1) for name in names}
