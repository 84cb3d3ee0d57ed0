"""A submit with an instance, in memory: it grabs, or has lost. As functions/rules/submit.lua has it."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.errors import LaneFull
from coordinator.in_place.attempts import Attempts
from coordinator.in_place.instances import about, told
from coordinator.jobs.request import JobRequest
from coordinator.jobs.states import Answer
from coordinator.jobs.submission import Submission
from coordinator.lanes.lanes import grab_submission


def may_retry(rules: Attempts, job_id: str) -> bool:
    """May a job that ended badly go on? Not where another has its instance, or has completed it; else it grabs anew."""
    record = rules.records[job_id]
    if "grab" not in record:
        return True
    if rules.state_of(record["keys"]) in ("running", "complete"):
        return False
    rules.instances.begin(record["keys"], job_id, about(job_id, "", 0))
    return True


def grabbing(
    rules: Attempts, request: JobRequest, put: Callable[[JobRequest], Submission | LaneFull]
) -> Submission | LaneFull:
    """Put a job in line, unless it is submitted with an instance that another has."""
    if "grab" not in request.fields[::2]:
        return put(request)
    (lane,), job_id = request.keys, request.id
    state, grab = rules.state_of(lane), rules.instances.kept.get(lane, {})
    if job_id not in rules.records and state in ("running", "complete"):
        outcome: Answer = "duplicate" if grab["job"] == job_id else "lost"
        return grab_submission(request, outcome, -1, grab["job"], told(state, grab), grab["job"])
    if job_id not in rules.records:
        rules.instances.begin(lane, job_id, about(job_id, "", 0))
    made = put(request)
    assert isinstance(made, Submission)
    state, grab = rules.state_of(lane), rules.instances.kept.get(lane, {})
    return grab_submission(request, made.outcome, made.position, job_id, told(state, grab), grab.get("job", ""))
