"""The pages of the library: each view reads what its page shows, by functions of the coordinator alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from coordinator.cursor import page_of
from coordinator.dashboard.acts import filter_of, on_jobs
from coordinator.dashboard.extend import Asked, Page, Tab, View
from coordinator.dashboard.show import url
from coordinator.diagnosis.fit import taken
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.fleet.nodes import Node, Nodes
from coordinator.jobs.record import Job, read_many
from coordinator.jobs.search import STATES as JOB_STATES
from coordinator.jobs.search import JobFilter, count
from coordinator.jobs.states import LaneState
from coordinator.jobs.validation import stored_lane
from coordinator.lanes.view import STATES, Lane, oldest
from coordinator.store.times import EPOCH
from coordinator.store.values import ActNote

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

ROWS = 50
LINE = 100
RUNS = 20
LONGEST = 5  # waits
DEEP = 4  # levels of sub-results
COUNTS = 0.5  # seconds of a count
SORTS = {"waiting": "Waiting", "wait": "Oldest wait"}
MOST_SORTED = 2000
NEVER = datetime.max.replace(tzinfo=UTC)


def overview(asked: Asked) -> Page:
    c = asked.coordinator
    nodes, gone = _nodes(c)
    findings = asked.keep("doctor", 15.0, c.doctor)
    summary, lines, counts = asked.keep("waits", 4.0, lambda: (c.why_summary(), c.contended(), c.counts()))
    values = {
        "findings": findings,
        "summary": summary,
        "longest": _longest(c, [row.example for row in summary.rows if row.example]),
        "lines": lines,
        "gone": gone,
        "rates": asked.keep("rates", 10.0, c.rates),
        "counts": counts,
        "nodes": nodes,
        "capacity": sum(node.capacity for node in nodes),
        "busy": sum(map(taken, nodes)),
    }
    return Page("overview.html", "Overview", values)


def _longest(c: Coordinator, ids: Sequence[str]) -> list[Job]:
    """The oldest job of each reason to wait, the oldest first."""
    return sorted(read_many(c.store, ids), key=lambda job: job.submitted or EPOCH)[:LONGEST]


def _nodes(c: Coordinator) -> tuple[list[Node], list[tuple[str, ActNote | None]]]:
    """The living nodes; then those that miss their heartbeats, or that are drained and not alive: name, and the act
    that drains it.
    """
    nodes = Nodes(c.store)
    known, drained = nodes.all(), nodes.drained()
    living = [node for node in known if node.alive]
    gone = {*drained, *(node.name for node in known)} - {node.name for node in living}
    return living, [(name, drained.get(name)) for name in sorted(gone)]


def lanes(asked: Asked) -> Page:
    state, after, sort = (asked.text(name) for name in ("state", "after", "sort"))
    prefix = asked.text("prefix") or asked.text("key").removesuffix("*")  # an act on all lanes comes back with its key
    if state and state not in STATES:
        raise InvalidJob(f"no state {state:.40}: a lane is {', '.join(STATES)}")
    if sort not in ("", *SORTS):
        raise InvalidJob(f"sort by {', '.join(SORTS)}, not {sort:.40}")
    c, wanted = asked.coordinator, cast("LaneState | None", state or None)
    if not sort:
        rows = c.lanes(prefix, wanted, ROWS + 1, after)
        first, more = page_of(rows, ROWS, attrgetter("key"))
        waits = oldest(c.store, first)
    else:

        def sorted_lanes() -> tuple[list[Lane], dict[str, tuple[str, datetime | None]]]:
            found = c.lanes(prefix, wanted, MOST_SORTED)
            return found, oldest(c.store, found)

        rows, waits = asked.keep(f"lanes {prefix}\n{state}", 4.0, sorted_lanes)
        begin, by_key = asked.number("after", 0, 0, MOST_SORTED), {key: at or EPOCH for key, (_, at) in waits.items()}
        line = {lane.key: len(lane.holders) - lane.length for lane in rows}
        order = sorted(rows, key=lambda lane: by_key.get(lane.key, NEVER) if sort == "wait" else line[lane.key])
        first, more = order[begin : begin + ROWS], str(begin + ROWS) if begin + ROWS < len(rows) else ""
    values = {
        "rows": first, "states": STATES, "more": more, "waits": waits, "sort": sort,
        "begins": prefix, "cut": bool(sort) and len(rows) >= MOST_SORTED and MOST_SORTED,
        "all": prefix + "*" if prefix else "",
    }  # fmt: skip
    return Page("lanes.html", "Lanes", values)


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
    whole = not found.after and not asked.text("after") and found.complete
    number = (len(found.jobs), True) if whole else _count(asked, wanted)
    return Page(
        "jobs.html",
        "Jobs",
        {
            "rows": found.jobs,
            "found": found,
            "states": JOB_STATES,
            "wanted": wanted,
            "may": on_jobs(wanted),
            "number": number,
        },
    )


def _count(asked: Asked, wanted: JobFilter) -> tuple[int, bool]:
    """How many jobs a filter finds, and whether that is all of them."""
    c = asked.coordinator
    return asked.keep(
        f"count {sorted(wanted.items())}", 10.0,
        lambda: count(c.store, COUNTS, c._unseen, **wanted),
    )  # fmt: skip


def _lasted(run: Job) -> float:
    return (run.ended - run.submitted).total_seconds() if run.ended and run.submitted else 0.0


def job(asked: Asked) -> Page:
    job_id, c = asked.text("id"), asked.coordinator
    found = c.job(job_id)
    why = None if found.over else c.why(found.id)
    return Page("job.html", f"Job {found.id}", {"job": found, "why": why, "parts": _parts(c, found.awaits)})


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-result of a parked job. `job`: None for an ordinary task, which has no record."""

    id: str
    job: Job | None
    parts: Sequence[Part] = ()


def _parts(c: Coordinator, ids: Sequence[str], deep: int = DEEP) -> list[Part]:
    """The sub-results of a job as a tree: at most 50 children of each part, and at most so many levels."""
    known = {job.id: job for job in read_many(c.store, ids[:ROWS])} if ids else {}
    return [
        Part(one, job := known.get(one), _parts(c, job.awaits, deep - 1) if job and deep else ()) for one in ids[:ROWS]
    ]


def refused(asked: Asked) -> Page:
    c = asked.coordinator
    rows = c.refused(ROWS * 2) if c.app else ()
    return Page("refused.html", "Refused requests", {"rows": rows, "app": c.app})


def nodes(asked: Asked) -> Page:
    rows, gone = _nodes(asked.coordinator)
    return Page("nodes.html", "Nodes", {"rows": rows, "gone": gone, "lost": asked.coordinator.lost_nodes()})


def node(asked: Asked) -> Page:
    name = asked.text("name")
    found = next((one for one in asked.coordinator.nodes() if one.name == name), None)
    if found is None:
        raise LookupError(f"no node {name} is alive; the page Nodes says who is, and who was drained or lost")
    why = asked.coordinator.why(node=name) if taken(found) < found.capacity else None
    at_work = asked.coordinator.jobs(state="running", node=name, most=ROWS).jobs
    hour = {state: _count(asked, JobFilter(state=state, node=name, since="1h")) for state in ("succeeded", "failed")}
    return Page("node.html", f"Node {name}", {"node": found, "why": why, "at_work": at_work, "hour": hour})


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
    acts = asked.coordinator.actions(ROWS + 1, asked.text("after"), by=by, thing=thing)
    rows, more = page_of(acts, ROWS, attrgetter("id"))
    return Page("actions.html", "Actions", {"rows": rows, "more": more})


def locks(asked: Asked) -> Page:
    return Page("locks.html", "Locks", {"rows": asked.coordinator.locks(ROWS * 4), "most": ROWS * 4})


def grabs(asked: Asked) -> Page:
    found = asked.coordinator.grabs(asked.text("key") or None, ROWS + 1, asked.text("after"))
    rows, more = page_of(found, ROWS, attrgetter("cursor"))
    return Page("grabs.html", "Grabs", {"rows": rows, "more": more})


def sorters(asked: Asked) -> Page:
    return Page("sorters.html", "Sorters", {"rows": asked.coordinator.sorters()})


def find(asked: Asked) -> str:
    """The address of what `q` names: a job, a lane, or the lanes whose keys begin so."""
    wanted, c = asked.text("q"), asked.coordinator
    try:
        return url("/job", id=c.job(wanted).id)
    except UnknownJob:
        there = [lane.key for lane in c.lanes(wanted, None, 1)]
    return url("/lane", key=wanted) if stored_lane(wanted) in there else url("/lanes", prefix=wanted)


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
