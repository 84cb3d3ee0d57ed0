"""The views of the library's pages: each function reads what its page shows, and returns the values for a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from coordinator.core.cursor import page_of
from coordinator.core.finding import Finding, sorted_findings
from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs import record
from coordinator.core.jobs.record import TERMINAL, Job, fields_of_many, read_many
from coordinator.core.jobs.states import BADLY, LaneState
from coordinator.core.jobs.validation import stored_lane
from coordinator.core.lanes.view import STATES, Lane
from coordinator.core.store.bundle import Bundle, beside
from coordinator.core.store.client import Store
from coordinator.core.store.times import EPOCH
from coordinator.core.store.values import ActNote
from coordinator.errors import InvalidJob
from coordinator.ops.dashboard.acts import WHICH, filter_of, on_jobs
from coordinator.ops.dashboard.extend import Page, Query, Tab, View
from coordinator.ops.diagnosis.doctor import found as faults_of
from coordinator.ops.diagnosis.entries import broken
from coordinator.ops.diagnosis.rates import rates_of
from coordinator.ops.diagnosis.redis_status import status_in
from coordinator.ops.diagnosis.snapshot import Snapshot
from coordinator.ops.diagnosis.summary import MEANS as REASONS
from coordinator.ops.diagnosis.summary import Summary, why_summary
from coordinator.ops.readings import TENANT_SORTS
from coordinator.ops.search.filter import BAD, JobFilter, states_in
from coordinator.ops.search.filter import STATES as JOB_STATES
from coordinator.ops.search.fit import taken
from coordinator.ops.search.groups import By, Groups
from coordinator.ops.search.jobs import count
from coordinator.ops.search.lanes import contended, oldest
from coordinator.ops.search.tenants import TenantSort
from coordinator.ops.verbs.acknowledged import acknowledged
from coordinator.ops.verbs.bulk import ON_STATES
from coordinator.scheduler.steering import MEANS

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

ROWS = 50
LINE = 100
RUNS = 20
LONGEST = 5  # jobs in the list of longest waits
DEEP = 4  # levels of sub-results that the page of a job shows
COUNTS = 0.5  # seconds after which counting the jobs of a filter stops
GROUPED = ("error", "task", "tenant")
SORTS = {"waiting": "Waiting", "wait": "Oldest wait"}
MOST_SORTED = 2000
NEVER = datetime.max.replace(tzinfo=UTC)


def overview(query: Query) -> Page:
    c = query.coordinator
    bundle, snapshot = Bundle(c.store), Snapshot(c._core, c.needed_labels)
    snapshot.begin(bundle)
    info, counted = bundle.add(lambda store: store.read("INFO")), bundle.add(record.counts)
    drained = bundle.add(lambda store: Nodes(store).drained())
    rates = bundle.add(lambda store: query.keep("rates", 10.0, lambda: rates_of(store)))
    bundle.run()
    nodes, gone = _living(snapshot.nodes, drained.result())
    values = {
        "redis": status_in(c.store, info.result(), bundle.shortest or 0.0),
        "gone": gone,
        "rates": rates.result(),
        "over": sorted(TERMINAL),
        "counts": counted.result(),
        "nodes": nodes,
        "capacity": sum(node.capacity for node in nodes),
        "busy": sum(map(taken, nodes)),
    }
    return Page("overview.html", "Overview", values, later=lambda: _troubles(query, snapshot))


def _troubles(query: Query, snapshot: Snapshot) -> dict[str, object]:
    """Read the second part of the Overview: what is wrong, why jobs wait, and the longest waits and lines."""
    c = query.coordinator
    bundle = Bundle(c.store)

    def waits(store: Store) -> tuple[Summary, list[Job]]:
        summary = why_summary(snapshot.within(store))
        return summary, _longest(store, [row.example for row in summary.rows if row.example])

    def of_others() -> list[Finding]:
        return [*c._findings_of_extensions(), *c._findings_of_app()]

    others = beside(lambda: query.keep("others", 15.0, of_others))
    examined = bundle.add(lambda store: query.keep("examined", 15.0, lambda: faults_of(store, snapshot=snapshot)))
    waiting = bundle.add(lambda store: query.keep("waits", 4.0, lambda: waits(store)))
    lines = bundle.add(lambda store: query.keep("lines", 4.0, lambda: contended(store, LONGEST)))
    bundle.run()
    summary, longest = waiting.result()
    findings = acknowledged(c.store, sorted_findings([*examined.result(), *others.result()]))
    return {
        "findings": [one for one in findings if not one.acknowledged],
        "known": [one for one in findings if one.acknowledged],
        "leads": _LEADS, "summary": summary, "longest": longest, "lines": lines.result(),
    }  # fmt: skip


_LEADS = {
    "job.held": ("/jobs", {"state": "held"}),
    "job.double-fault": ("/jobs", {"state": "double_fault", "since": "1h"}),
    "job.lost": ("/jobs", {"state": "failed", "error": "Lost:", "since": "1h"}),
    "lane.paused": ("/jobs", {"reason": "waiting.paused"}),
    "request.refused": ("/refused", {}),
    "node.lost": ("/nodes", {}),
}
"""Code of a finding -> path and values of the page that lists what it counts."""


def _longest(store: Store, ids: Sequence[str]) -> list[Job]:
    """Read the jobs with these ids, and return the five oldest of them, the oldest first."""
    return sorted(read_many(store, ids), key=lambda job: job.submitted or EPOCH)[:LONGEST]


def _nodes(c: Coordinator) -> tuple[list[Node], list[tuple[str, ActNote | None]]]:
    """Return the living nodes; and of each node that misses its heartbeats, or is drained and not alive, the name and
    the act that drained it, None if it is not drained.
    """
    nodes = Nodes(c.store)
    return _living(nodes.all(), nodes.drained())


def _living(
    known: Sequence[Node], drained: Mapping[str, ActNote]
) -> tuple[list[Node], list[tuple[str, ActNote | None]]]:  # fmt: skip
    living = [node for node in known if node.alive]
    gone = {*drained, *(node.name for node in known)} - {node.name for node in living}
    return living, [(name, drained.get(name)) for name in sorted(gone)]


def lanes(query: Query) -> Page:
    state, after, sort = (query.text(name) for name in ("state", "after", "sort"))
    # An act on all lanes with a prefix returns to this page with `key=prefix*` instead of `prefix`.
    prefix = query.text("prefix") or query.text("key").removesuffix("*")
    if state and state not in STATES:
        raise InvalidJob(f"no state {state:.40}: a lane is {', '.join(STATES)}")
    if sort not in ("", *SORTS):
        raise InvalidJob(f"sort by {', '.join(SORTS)}, not {sort:.40}")
    c, wanted = query.coordinator, cast("LaneState | None", state or None)
    if not sort:
        rows = c.lanes(prefix, wanted, ROWS + 1, after)
        first, more = page_of(rows, ROWS, attrgetter("key"))
        waits = oldest(c.store, first)
    else:

        def sorted_lanes() -> tuple[list[Lane], dict[str, tuple[str, datetime | None]]]:
            found = c.lanes(prefix, wanted, MOST_SORTED)
            return found, oldest(c.store, found)

        rows, waits = query.keep(f"lanes {prefix}\n{state}", 4.0, sorted_lanes)
        begin, by_key = query.number("after", 0, 0, MOST_SORTED), {key: at or EPOCH for key, (_, at) in waits.items()}
        line = {lane.key: len(lane.holders) - lane.length for lane in rows}
        order = sorted(rows, key=lambda lane: by_key.get(lane.key, NEVER) if sort == "wait" else line[lane.key])
        first, more = order[begin : begin + ROWS], str(begin + ROWS) if begin + ROWS < len(rows) else ""
    values = {
        "rows": first, "states": STATES, "more": more, "waits": waits, "sort": sort,
        "begins": prefix, "cut": bool(sort) and len(rows) >= MOST_SORTED and MOST_SORTED,
        "all": prefix + "*" if prefix else "",
    }  # fmt: skip
    return Page("lanes.html", "Lanes", values)


def lane(query: Query) -> Page:
    key, c = query.text("key"), query.coordinator
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


def tenants(query: Query) -> Page:
    c, sort, most = query.coordinator, query.text("sort", "waiting") or "waiting", query.number("most", ROWS, 1, 1000)
    prefix = query.text("prefix") or query.text("key")
    prefix = stored_lane(prefix.removesuffix("*"))
    found = query.keep(
        f"tenants {sort} {most} {prefix}", 5.0, lambda: c.tenants(prefix, cast(TenantSort, sort), most)
    )  # fmt: skip
    above = [prefix[: end + 1] for end, letter in enumerate(prefix[:-1]) if letter == "/"]
    values = {"found": found, "sort": sort, "sorts": TENANT_SORTS, "above": above, "since": found.failed_since}
    return Page("tenants.html", "Tenants", values)


def jobs(query: Query) -> Page:
    wanted, by, after = filter_of(query), query.text("by"), query.text("after")
    values = {
        "states": [*JOB_STATES, BAD], "reasons": REASONS, "wanted": wanted, "chosen": states_in(wanted),
        "chips": _groups(query, "state", cast(JobFilter, {**wanted, "state": None})), "bys": GROUPED, "by": by,
        "badly": BADLY, "which": WHICH,
    }  # fmt: skip
    if by:
        return Page("jobs.html", "Jobs", values | {"groups": _groups(query, cast("By", by), wanted)})
    found = query.coordinator.jobs(most=ROWS, after=after, **wanted)
    whole = not found.after and not after and found.complete
    number = (len(found.jobs), True) if whole else _count(query, wanted)
    picks = [verb for verb, states in ON_STATES.items() if any(job.state in states for job in found.jobs)]
    values |= {"rows": found.jobs, "found": found, "may": on_jobs(wanted), "picks": picks, "number": number}
    return Page("jobs.html", "Jobs", values)


def _groups(query: Query, by: By, wanted: JobFilter) -> Groups:
    """Count the jobs of a filter in groups, for at most half a second."""
    names = sorted((name, value) for name, value in wanted.items() if value)
    return query.keep(f"groups {by} {names}", 10.0, lambda: query.coordinator.job_groups(by, **wanted))


def _count(query: Query, wanted: JobFilter) -> tuple[int, bool]:
    """Count the jobs that a filter finds, for at most half a second. Returns the number, and True if these are all."""
    c = query.coordinator
    return query.keep(
        f"count {sorted(wanted.items())}", 10.0,
        lambda: count(c.store, COUNTS, c._unseen, **wanted),
    )  # fmt: skip


def _lasted(run: Job) -> float:
    return (run.ended - run.submitted).total_seconds() if run.ended and run.submitted else 0.0


def job(query: Query) -> Page:
    job_id, c = query.text("id"), query.coordinator
    found = c.job(job_id)
    why = None if found.over else c.why(found.id)
    others = [wait.job_id for wait in found.after[:ROWS] if wait.job_id] + [*found.dependants[:ROWS]]
    known = dict(zip(others, fields_of_many(c.store, others, "state"), strict=True))
    states = {job_id: state for job_id, (state,) in known.items()}
    values = {"job": found, "why": why, "parts": _parts(c, found.awaits), "states": states, "most": ROWS}
    return Page("job.html", f"Job {found.id}", values)


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-result of a parked job. `job`: None for an ordinary task, which has no record. `parts`: the sub-results of
    that job, if it is parked itself.
    """

    id: str
    job: Job | None
    parts: Sequence[Part] = ()


def _parts(c: Coordinator, ids: Sequence[str], deep: int = DEEP) -> list[Part]:
    """Return the sub-results of a job as a tree: at most 50 children of each part, and `deep` levels below the first.

    `ids`: of the job's own sub-results.
    """
    known = {job.id: job for job in read_many(c.store, ids[:ROWS])} if ids else {}
    return [
        Part(one, job := known.get(one), _parts(c, job.awaits, deep - 1) if job and deep else ()) for one in ids[:ROWS]
    ]


def refused(query: Query) -> Page:
    c = query.coordinator
    rows = c.refused(ROWS * 2) if c.app else ()
    return Page("refused.html", "Refused requests", {"rows": rows, "app": c.app})


def nodes(query: Query) -> Page:
    rows, gone = _nodes(query.coordinator)
    return Page("nodes.html", "Nodes", {"rows": rows, "gone": gone, "lost": query.coordinator.lost_nodes()})


def node(query: Query) -> Page:
    name = query.text("name")
    found = next((one for one in query.coordinator.nodes() if one.name == name), None)
    if found is None:
        raise LookupError(f"no node {name} is alive; the page Nodes says who is, and who was drained or lost")
    why = query.coordinator.why(node=name) if taken(found) < found.capacity else None
    at_work = query.coordinator.jobs(state="running", node=name, most=ROWS).jobs
    hour = {state: _count(query, JobFilter(state=state, node=name, since="1h")) for state in ("succeeded", "failed")}
    return Page("node.html", f"Node {name}", {"node": found, "why": why, "at_work": at_work, "hour": hour})


def quotas(query: Query) -> Page:
    c, prefix = query.coordinator, query.text("prefix") or query.text("name").removesuffix("*")
    found, weights = c.quotas(prefix, ROWS, query.text("after")), c.weights()
    values = {
        "rows": found.quotas, "more": found.after, "defaults": found.defaults,
        "weights": [*weights.items()][: ROWS * 4], "weighted": len(weights),
    }  # fmt: skip
    return Page("quotas.html", "Quotas", values)


def quota(query: Query) -> Page:
    c, name = query.coordinator, query.text("name")
    if not name:
        raise InvalidJob("which quota? The address lacks ?name=")
    found = c.quota_status(name, ROWS)
    ids = [*(one.job_id for one in found.users), *(one.job_id for one in found.queue)]
    jobs = {job.id: job for job in read_many(c.store, ids)} if ids else {}
    users = [(one, jobs.get(one.job_id)) for one in found.users]
    queue = [(one, jobs.get(one.job_id)) for one in found.queue]
    return Page("quota.html", f"Quota {name}", {"quota": found.quota, "users": users, "queue": queue})


def events(query: Query) -> Page:
    found = query.coordinator.events(query.text("prefix"), ROWS, query.text("after"))
    return Page("events.html", "Events", {"rows": found.events, "more": found.after})


def event(query: Query) -> Page:
    name = query.text("name")
    if not name:
        raise InvalidJob("which event? The address lacks ?name=")
    found = query.coordinator.event_status(name, ROWS)
    jobs = {job.id: job for job in read_many(query.coordinator.store, [one.job_id for one in found.waiters])}
    waiters = [(one, jobs.get(one.job_id)) for one in found.waiters]
    return Page("event.html", f"Event {name}", {"event": found.event, "waiters": waiters})


def schedule(query: Query) -> Page:
    prefix = query.text("prefix")
    rows, living = query.coordinator.entries.all(prefix, ROWS * 4), query.coordinator.nodes()
    wrong = {entry.name: broken(entry, living) for entry in rows}
    return Page("schedule.html", "Schedule", {"rows": rows, "most": ROWS * 4, "wrong": wrong})


def entry(query: Query) -> Page:
    name, entries = query.text("name"), query.coordinator.entries
    found = entries.entry(name, MEANS)
    wrong = broken(found, query.coordinator.nodes())
    values = {"entry": found, "history": entries.history(name)[::-1], "wrong": wrong}
    return Page("entry.html", f"Entry {name}", values)


def actions(query: Query) -> Page:
    filters = {name: query.text(name) or None for name in ("by", "thing", "since", "until")}
    acts = query.coordinator.actions(ROWS + 1, query.text("after"), **filters)
    rows, more = page_of(acts, ROWS, attrgetter("id"))
    return Page("actions.html", "Actions", {"rows": rows, "more": more})


def locks(query: Query) -> Page:
    return Page("locks.html", "Locks", {"rows": query.coordinator.locks(ROWS * 4), "most": ROWS * 4})


def grabs(query: Query) -> Page:
    found = query.coordinator.grabs(query.text("key") or None, ROWS + 1, query.text("after"))
    rows, more = page_of(found, ROWS, attrgetter("cursor"))
    return Page("grabs.html", "Grabs", {"rows": rows, "more": more})


def sorters(query: Query) -> Page:
    return Page("sorters.html", "Sorters", {"rows": query.coordinator.sorters()})


VIEWS: Mapping[str, View] = {
    "/": overview, "/lanes": lanes, "/lane": lane, "/tenants": tenants,
    "/jobs": jobs, "/job": job, "/nodes": nodes, "/node": node,
    "/quotas": quotas, "/quota": quota, "/events": events, "/event": event, "/schedule": schedule, "/entry": entry,
    "/actions": actions, "/locks": locks, "/grabs": grabs, "/sorters": sorters, "/refused": refused,
}  # fmt: skip
TABS = (
    Tab("Overview", "/"),
    Tab("Lanes", "/lanes", ("/lane",)),
    Tab("Tenants", "/tenants"),
    Tab("Jobs", "/jobs", ("/job",)),
    Tab("Quotas", "/quotas", ("/quota",)),
    Tab("Events", "/events", ("/event",)),
    Tab("Nodes", "/nodes", ("/node",)),
    Tab("Schedule", "/schedule", ("/entry",)),
    Tab("Actions", "/actions"),
    Tab("Locks", "/locks"),
    Tab("Grabs", "/grabs"),
    Tab("Sorters", "/sorters"),
    Tab("Refused", "/refused"),
)
