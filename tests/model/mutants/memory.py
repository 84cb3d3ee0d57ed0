"""Faults in the rules of jobs in place: `new` for `old` in one function of `coordinator.in_place`."""

from typing import Any, NamedTuple

from coordinator.in_place import attempts, grabs, in_place, instances, lanes, lines, melting, sorters


class Fault(NamedTuple):
    """`owner`: the class or module that has the function; `seldom`: left to `make soak`."""

    owner: Any
    function: str
    why: str
    old: str
    new: str
    seldom: bool = False


Lines, Attempts, Memory, InPlace = lines.Lines, attempts.Attempts, lanes.Memory, in_place.InPlace

FAULTS = [
    Fault(Lines, "is_busy", "a paused lane is not busy", "key in self.paused or ", "", True),
    Fault(Lines, "is_busy", "a lane with a limit is busy at once", "self.limit(key)", "1", True),
    Fault(Lines, "waiting", "one at work counts as one that waits", '["state"] == "waiting"', '["state"] != ""', True),
    Fault(Lines, "score", "priorities have no effect", '-int(self.records[job_id].get("priority", 0))', "0"),
    Fault(Lines, "score", "the front is the back", 'self._fronts if to == "front" else ', ""),
    Fault(Lines, "_order", "one that was started is overtaken", '["state"] == "waiting"', '["state"] != ""'),
    Fault(Lines, "may_start", "a job starts that is first in one of its lines only", "all(", "any("),
    Fault(Lines, "_lets", "one more than the limit starts", "len(before) <", "len(before) <="),
    Fault(Lines, "_lets", "a job of weight all has company", " and not alone", "", True),
    Fault(Lines, "_lets", "a paused lane starts jobs", "key not in self.paused and ", ""),
    Fault(Lines, "admit", "only the first of a line is looked at", "[: self.limit(key)]", "[:1]", True),
    Fault(Lines, "put_back", "one that goes on goes behind the others", "-_FRONT", "0", True),
    Fault(Lines, "call_back", "a pause does not reach who is ready", "if one in self.ready and", "if False and", True),
    Fault(Lines, "take", "a lowered limit lets all of them run", "max(1, self.limit(key))", "9"),
    Fault(Lines, "leave", "who stands behind in another lane waits for ever", "self.admit(key)", "break", True),
    Fault(Lines, "_unmelt", "a submit melts into a job that has begun", "self._melts.pop(melt, None)", "pass", True),
    Fault(
        Lines,
        "join_due",
        "what is delayed comes last first",
        "sorted(self.delayed, key=lambda one: (self.delayed[one], one))",
        "reversed(list(self.delayed))",
        True,
    ),
    Fault(Attempts, "conclude", "the outcome of a cancelled job counts", 'record.pop("stop", "")', '""', True),
    Fault(
        Attempts, "conclude", "the error of an attempt is forgotten", 'record["error"] = outcome.detail', "pass", True
    ),
    Fault(Attempts, "_succeed", "the attempts of all steps are one budget", '_add(record, "forgiven")', "pass", True),
    Fault(Attempts, "give_up", "a job that never ran is rolled back", ' or "taken" not in record', "", True),
    Fault(Attempts, "_undo_on", "a rollback that waits has failed", 'outcome.kind == "parked"', "False"),
    Fault(Attempts, "_undo_on", "a rollback ends with its first step", "step is not None", "False"),
    Fault(Attempts, "give_up", "a rollback runs twice", ' or record.get("phase") == "undone"', "", True),
    Fault(Attempts, "undone", "a fault is not counted", 'self.counted["faults"] += 1', "pass"),
    Fault(Attempts, "_end_or_hold", "what is cancelled is held", ' and state != "cancelled"', "", True),
    Fault(Attempts, "again", "an undone chain goes on where it was", '== "done"', '== ""', True),
    Fault(Attempts, "again", "a retried job has no attempts left", 'record.get("attempt", "0")', '"0"', True),
    Fault(attempts, "_may_try_again", "one conflict less", "<= MAX_CONFLICTS", "< MAX_CONFLICTS", True),
    Fault(attempts, "_may_try_again", "a conflict is an attempt", '_add(record, "forgiven")', "pass", True),
    Fault(Memory, "_put_in_line", "skip is queue", "request.skip_keys", "()"),
    Fault(Memory, "_put_in_line", "skip looks at the first key", "request.skip_keys", "request.skip_keys[:1]"),
    Fault(Memory, "_put_in_line", "defer is queue", 'request.when_busy == "defer" and (other', "False and (other"),
    Fault(Memory, "submit_many", "an error keeps others from running", "self._settle()", "pass"),
    Fault(Memory, "retry", "a held job keeps its first start", 'if job.state == "held"', 'if job.state == ""', True),
    Fault(Memory, "release", "a waiter is released", ' or "taken" not in rules.records[held[0]]', ""),
    Fault(Memory, "resume", "a resumed lane stands still", "self.rules.admit(key)", "pass", True),
    Fault(Memory, "set_limit", "a limit that is raised starts nobody", "self.rules.admit(key)", "pass", True),
    Fault(Memory, "move", "a moved job starts late", "rules.admit(key)", "pass", True),
    Fault(melting, "unite", "everything becomes something", "has is None or ", ""),
    Fault(InPlace, "_lease", "a lock is had beside a job", "queue or not rules.is_busy(key)", "True", True),
    Fault(InPlace, "_ring", "a job waits for itself", "ring(self.rules, job_id, handles)", "None"),
    Fault(
        InPlace, "_look", "sub-results of a job that is over go on", "if one in self.rules.records", "if False", True
    ),
    Fault(sorters.SortersInMemory, "hold", "who asks again is refused", "token and asked == token", "False", True),
]

Instances, GrabsInMemory = instances.Instances, grabs.GrabsInMemory

OF_GRABS = [
    Fault(Instances, "begin", "attempts at an instance are not counted", "+ 1)", "* 1)"),
    Fault(Instances, "take", "nobody learns which node has the job", '== job_id:', '== "":'),
    Fault(Lines, "leave", "a job that failed has completed its instance", '"complete" if well else "failed"',
          '"complete"'),
    Fault(Attempts, "state_of", "an instance is abandoned while its process is at work", "or self.holds(",
          "or not self.holds("),
    Fault(GrabsInMemory, "_take", "a completed instance is grabbed again", '("running", "complete")', '("running",)'),
    Fault(GrabsInMemory, "_end", "the lane of an instance stays held", 'rules.leave(job_id, "succeeded")',
          "rules.records[job_id]['state'] = 'held'"),
]  # fmt: skip
