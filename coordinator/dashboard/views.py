"""The pages of the library: each view reads what its page shows, by functions of the coordinator alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from coordinator.dashboard import hide
from coordinator.dashboard.acts import filter_of, on_jobs
from coordinator.dashboard.extend import Asked, Page, Tab, View
from coordinator.dashboard.show import url
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.jobs.record import Job
from coordinator.jobs.search import STATES as JOB_STATES
from coordinator.jobs.states import LaneState
from coordinator.lanes.view import STATES

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

ROWS = 50
LINE = 100
RUNS = 20


def overview(asked: Asked) -> Page:
    c = asked.coordinator
    nodes, findings = c.nodes(), asked.keep("doctor", 15.0, c.doctor)
    values = {
        "findings": findings,
        "summary": asked.keep("summary", 4.0, c.why_summary),
        "contended": asked.keep("contended", 4.0, c.contended),
        "rates": asked.keep("rates", 10.0, c.rates),
        "counts": c.counts(),
        "nodes": nodes,
        "capacity": sum(node.capacity for node in nodes),
        "busy": sum(node.running for node in nodes),
    }
    return Page("overview.html", "Overview", values)


def lanes(asked: Asked) -> Page:
    prefix, state, after = asked.text("prefix"), asked.text("state"), asked.text("after")
    if state and state not in STATES:
        raise InvalidJob(f"no state {state:.40}: a lane is {', '.join(STATES)}")
    rows = asked.coordinator.lanes(prefix, cast("LaneState | None", state or None), ROWS + 1, after)
    more = rows[ROWS - 1].key if len(rows) > ROWS else ""
    return Page("lanes.html", "Lanes", {"rows": rows[:ROWS], "states": STATES, "more": more})


def lane(asked: Asked) -> Page:
    key, c = asked.text("key"), asked.coordinator
    if not key:
        raise InvalidJob("which lane? The address lacks ?key=")
    found = c.lane(key, LINE, RUNS)
    jobs = {job.id: job for job in c.line(found)}
    holders = [(holder, jobs.get(holder.job_id)) for holder in found.holders]
    held = {holder.job_id for holder in found.holders}
    waiting = [jobs[job_id] for job_id in found.jobs if job_id in jobs and job_id not in held]
    longest = max(map(_lasted, found.runs), default=0.0)
    why = None if found.state in ("running", "empty") else c.why(key=key)
    values = {"lane": found, "holders": holders, "waiting": waiting, "longest": longest, "why": why}
    return Page("lane.html", f"Lane {key}", values)


def jobs(asked: Asked) -> Page:
    wanted = filter_of(asked)
    found = asked.coordinator.jobs(most=ROWS, after=asked.text("after"), **wanted)
    return Page(
        "jobs.html",
        "Jobs",
        {"rows": found.jobs, "found": found, "states": JOB_STATES, "wanted": wanted, "may": on_jobs(wanted)},
    )


def _lasted(run: Job) -> float:
    return (run.ended - run.submitted).total_seconds() if run.ended and run.submitted else 0.0


def job(asked: Asked) -> Page:
    job_id, c = asked.text("id"), asked.coordinator
    found = hide.job(c, c.job(job_id))
    why = None if found.over else c.why(found.id)
    parts = [_part(c, one) for one in found.awaits]
    return Page("job.html", f"Job {found.id}", {"job": found, "why": why, "parts": parts})


def _part(c: Coordinator, job_id: str) -> tuple[str, str]:
    """The id and the state of a sub-result; that of an ordinary task stands in no record."""
    try:
        return job_id, c.job(job_id).state
    except UnknownJob:
        return job_id, ""


def refused(asked: Asked) -> Page:
    c = asked.coordinator
    rows = [hide.refused(c, one) for one in c.refused(ROWS * 2)] if c.app else ()
    return Page("refused.html", "Refused requests", {"rows": rows, "app": c.app})


def nodes(asked: Asked) -> Page:
    return Page("nodes.html", "Nodes", {"rows": asked.coordinator.nodes()})


def node(asked: Asked) -> Page:
    name = asked.text("name")
    found = next((one for one in asked.coordinator.nodes() if one.name == name), None)
    if found is None:
        raise LookupError(f"no node {name} is alive")
    why = asked.coordinator.why(node=name) if found.running < found.capacity else None
    at_work = asked.coordinator.jobs(state="running", node=name, most=ROWS).jobs
    return Page("node.html", f"Node {name}", {"node": found, "why": why, "at_work": at_work})


def schedule(asked: Asked) -> Page:
    prefix = asked.text("prefix")
    rows = asked.coordinator.entries.all(prefix, ROWS * 4)
    return Page("schedule.html", "Schedule", {"rows": rows, "most": ROWS * 4})


def entry(asked: Asked) -> Page:
    name, entries = asked.text("name"), asked.coordinator.entries
    values = {"entry": entries.entry(name, 10), "history": entries.history(name)[::-1]}
    return Page("entry.html", f"Entry {name}", values)


def actions(asked: Asked) -> Page:
    by, thing = asked.text("by") or None, asked.text("thing") or None
    rows = asked.coordinator.actions(ROWS + 1, asked.text("after"), by=by, thing=thing)
    more = rows[ROWS - 1].id if len(rows) > ROWS else ""
    return Page("actions.html", "Actions", {"rows": rows[:ROWS], "more": more})


def locks(asked: Asked) -> Page:
    return Page("locks.html", "Locks", {"rows": asked.coordinator.locks(ROWS * 4), "most": ROWS * 4})


def grabs(asked: Asked) -> Page:
    key = asked.text("key")
    rows = asked.coordinator.grabs(key or None, ROWS)
    return Page("grabs.html", "Grabs", {"rows": rows[: ROWS * 4], "count": len(rows)})


def sorters(asked: Asked) -> Page:
    return Page("sorters.html", "Sorters", {"rows": asked.coordinator.sorters()})


def find(asked: Asked) -> str:
    """The address of what `q` names: a job, a lane, or the lanes whose keys begin so."""
    wanted, c = asked.text("q"), asked.coordinator
    try:
        return url("/job", id=c.job(wanted).id)
    except UnknownJob:
        there = [lane.key for lane in c.lanes(wanted, None, 1)]
    return url("/lane", key=wanted) if wanted in there else url("/lanes", prefix=wanted)


VIEWS: Mapping[str, View] = {
    "/": overview, "/lanes": lanes, "/lane": lane, "/jobs": jobs, "/job": job, "/nodes": nodes, "/node": node,
    "/schedule": schedule, "/entry": entry, "/actions": actions, "/locks": locks, "/grabs": grabs, "/sorters": sorters,
    "/refused": refused,
}  # fmt: skip
TABS = (
    Tab("Overview", "/"),
    Tab("Lanes", "/lanes", ("/lane",)),
    Tab("Jobs", "/jobs", ("/job",)),
    Tab("Nodes", "/nodes", ("/node",)),
    Tab("Schedule", "/schedule", ("/entry",)),
    Tab("Actions", "/actions"),
    Tab("Locks", "/locks"),
    Tab("Grabs", "/grabs"),
    Tab("Sorters", "/sorters"),
    Tab("Refused", "/refused"),
)
