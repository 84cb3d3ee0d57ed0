"""Reads from the lanes which items components work on, and applies operators' acts to an item and its waiting jobs."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, TypedDict

from coordinator import Cause, Job, Lane, UnknownEntry, UnknownJob, Why
from coordinator.author import refuses_viewers
from coordinator.jobs.validation import near
from coordinator.lanes.view import closed
from coordinator.scheduler.entries import next_tick
from tasks import instants
from tasks.batches import ItemConflict, ItemEvent, UnknownItem, runs
from tasks.batches.profiles import Newest, Profile
from tasks.batches.repair import Repair
from tasks.batches.round_trips import Outcomes
from tasks.batches.round_trips import approve as approve_batch
from tasks.batches.values import STOPPED
from tasks.components.declaration import Component
from tasks.components.poll import priority_of
from tasks.components.registry import POLL, Registry

PAGE = 1000
WAITS = ("waiting", "ready")


class Working(NamedTuple):
    """An item that a component works on. `node` is None while the job is between two attempts."""

    component: str
    item: str
    node: str | None
    job: str
    since: datetime | None


class ComponentCondition(TypedDict):
    """A component, as it is shown. `idle`: why it works on nothing; empty where it works."""

    component: str
    version: str
    event: str
    past: list[str]
    past_failed: list[str]
    future: list[str]
    old: list[str]
    types: list[str]
    simultaneous_processes: int
    limit: int
    working: list[str]
    waiting: int
    eligible: int
    idle: list[str]
    last_run: datetime | None
    last_submitted: int | None
    next_run: datetime | None


def working(registry: Registry, component: Component) -> list[Working]:
    """The items that the component works on now, the longest first. Items that wait are not among them."""
    items = []
    for lane in _lanes(registry, component.lane_of("")):
        job = _front(registry, lane)
        if job is not None and job.state not in WAITS:
            item = lane.key.removeprefix(component.lane_of(""))
            items.append(Working(component.name, item, job.node, job.id, job.started or job.taken))
    return sorted(items, key=lambda work: (work.since is None, work.since and work.since.timestamp(), work.item))


def no_node(registry: Registry, component: Component) -> str:
    """The reason why no node works on this component; "" where a living node has it."""
    nodes = registry.coordinator.nodes()
    if any(f"{POLL}.{component.name}" in node.tasks for node in nodes):
        return ""
    names = ", ".join(node.name for node in nodes)
    return f"none of the living nodes has this component: {names}" if nodes else "no node is alive"


def idle(registry: Registry, component: Component, eligible: int) -> list[str]:
    """The reasons why the component works on nothing. `eligible`: the number of its items."""
    if reasons := [reason for reason in _hindrances(registry, component) if reason]:
        return reasons
    return [f"{eligible} items are eligible: its next run asks for them" if eligible else "no item is eligible"]


def _hindrances(registry: Registry, component: Component) -> Iterator[str]:
    """What keeps its runs and its children from their start, and the events that no item ever had."""
    yield no_node(registry, component)
    try:
        paused = registry.coordinator.entries.entry(component.run_lane, 0).paused
        yield f"its schedule is paused by {paused['by']}: {paused['why'] or 'no reason given'}" if paused else ""
    except UnknownEntry:
        yield "no beat knows its schedule: start one, or run it by hand"
    lanes = [registry.coordinator.lane(key, 1) for key in component.limits]
    for lane in lanes:
        yield f"its lane {lane.key} is {why}" if (why := closed(lane)) else ""
        yield f"its run {lane.jobs[0]} is parked until its children end" if lane.state == "parked" else ""
    kinds = registry.items.kinds()
    known = kinds.union(other.event for other in registry.all())
    for kind in (*component.past, *component.past_failed):
        if kind not in kinds:
            yield f"no item ever had the event {kind}{near(kind, known - {kind})}"


def condition(here: Registry, component: Component) -> ComponentCondition:
    """What the component waits for, what it works on, or why it works on nothing."""
    lane, last = here.coordinator.lane(component.name, 1), runs.last(here.items.engine, component.name)
    items, eligible = [work.item for work in working(here, component)], here.items.count(component.wanted)
    return {
        "component": component.name,
        "version": component.version,
        "event": component.event,
        "past": list(component.past),
        "past_failed": list(component.past_failed),
        "future": list(component.wanted.future),
        "old": list(component.old),
        "types": list(component.types),
        "simultaneous_processes": component.simultaneous_processes,
        "limit": lane.limit,
        "working": items,
        "waiting": max(0, lane.length - len(items)),
        "eligible": eligible,
        "idle": [] if items else idle(here, component, eligible),
        "last_run": last and last.at,
        "last_submitted": last and last.submitted,
        "next_run": next_tick(here.coordinator.store, component.run_lane),
    }


def at_work(registry: Registry, item: str) -> str | None:
    """A sentence about the component that works on the item now; None where none does."""
    for component in registry.all():
        lane = registry.coordinator.lane(component.lane_of(item), 1)
        if lane.state not in ("empty", *WAITS):
            return f"{component.name} works on it ({[*lane.holders, *lane.jobs][0]}, {lane.state})"
    return None


def why(registry: Registry, item: str) -> Why:
    """Explain, for each component, what keeps it from working on the item. Raises UnknownItem."""
    profile = registry.items.profiles([item]).get(item)
    if profile is None:
        raise UnknownItem(item)
    thing = f"item {item}"
    causes = [cause for component in registry.all() for cause in _causes(registry, component, item, profile)]
    if STOPPED in profile.events:
        frees = f"coordinator items remove {item} {STOPPED} --why TEXT"
        causes.insert(0, Cause("item.stopped", thing, f"{item} is stopped for every component", frees=frees))
    done = [component.event for component in registry.all() if component.event in profile.events]
    causes = causes or [Cause("item.done", thing, f"{item} has all its events: {', '.join(done) or 'none is made'}")]
    return Why(thing, causes[0].text, tuple(causes), instants.now())


def _causes(registry: Registry, component: Component, item: str, profile: Profile) -> Iterator[Cause]:
    thing, name, events = f"item {item}", component.name, profile.events
    lane = registry.coordinator.lane(component.lane_of(item), 1)
    if lane.jobs:
        verb = "waits for its turn on it" if lane.state in WAITS else "works on it"
        yield Cause("item.at-work", thing, f"{name} {verb}: job {lane.jobs[0]}", of=(f"job {lane.jobs[0]}",))
        return
    event = events.get(component.event)
    if event is not None and not event.success:
        frees = f"coordinator items restart {item} --why TEXT"
        yield Cause("item.failed", thing, f"{component.event} of {name} failed", frees=frees)
    elif component.wanted.fits(profile):
        reasons = "; ".join(idle(registry, component, 1))
        yield Cause("item.eligible", thing, f"{name} has not asked for it yet: {reasons}")
    elif event is None and (not component.types or profile.type in component.types):
        yield from _lacks(component, thing, events)


def _lacks(component: Component, thing: str, events: Mapping[str, Newest]) -> Iterator[Cause]:
    """The events for which the component waits, or that keep it away."""
    for kind in component.past:
        if kind not in events or not events[kind].success:
            what = "failed" if kind in events else "is not there"
            yield Cause("item.lacks", thing, f"{component.name} waits for {kind}, which {what}")
    for kind in component.past_failed:
        if kind not in events or events[kind].success:
            yield Cause("item.lacks", thing, f"{component.name} waits for a failed {kind}")
    for kind in component.future:
        if kind in events:
            yield Cause("item.has", thing, f"{component.name} leaves it out, since it has {kind}")


def repair(registry: Registry, by: str, why: str = "") -> Repair:
    return Repair(registry.items, registry.depends_on(), lambda item: at_work(registry, item), by, why)


def register(registry: Registry, item: str, kind: str, directory: str | None, priority: int | None) -> None:
    """Register an item. Raises ItemConflict where it is there, and ValueError where no component works on its type."""
    declared = registry.all()
    types = sorted({name for component in declared for name in component.types})
    if declared and kind not in types and all(component.types for component in declared):
        wrong = f"type {kind!r}{near(kind, types)}: no component works on it; they work on {', '.join(types)}"
        raise ValueError(wrong)
    if not registry.items.register(item, type=kind, directory=directory, priority=priority):
        raise ItemConflict(f"{item} is registered already: coordinator items show {item}")


# Acts of operators. The audit trail has each, once it is done; the history of the item has repairs, too.


@refuses_viewers
def restart(
    registry: Registry, item: str, kind: str | None = None, *, dry_run: bool = False, by: str, why: str = "",
    ticket: str = "",
) -> list[ItemEvent]:  # fmt: skip
    """Remove the first failure, or the events of `kind`, and all that depend on them; give them. See Repair."""
    removed = repair(registry, by, why).restart(item, kind, dry_run=dry_run)
    if not dry_run:
        _note(registry, "restart", item, by, why, ticket, before=_names(removed))
    return removed


@refuses_viewers
def remove(registry: Registry, item: str, kind: str, *, by: str, why: str = "", ticket: str = "") -> list[ItemEvent]:
    """Remove the events of one type; give them. See Repair."""
    removed = repair(registry, by, why).remove(item, kind)
    _note(registry, "remove", item, by, why, ticket, before=_names(removed))
    return removed


@refuses_viewers
def append(
    registry: Registry, item: str, kind: str, *, success: bool = True, by: str, why: str = "", ticket: str = ""
) -> None:
    """Append an event by hand. See Repair."""
    repair(registry, by, why).add(item, kind, success=success)
    _note(registry, "append", item, by, why, ticket, after=kind if success else f"{kind} failed")


@refuses_viewers
def prioritise(registry: Registry, item: str, priority: int | None, *, by: str, why: str = "", ticket: str = "") -> int:
    """Change the priority of the item and of its waiting jobs. Returns how many jobs were moved."""
    before = registry.items.item(item).priority
    registry.items.prioritise(item, priority)
    _note(registry, "prioritise", item, by, why, ticket, str(before or "none"), str(priority or "none"))
    moved = 0
    for job_id in _waiting(registry, item):
        try:
            registry.coordinator.move(job_id, priority=priority_of(priority), by=by, why=why)
            moved += 1
        except (UnknownJob, ValueError):  # the job has started meanwhile
            continue
    return moved


@refuses_viewers
def stop(registry: Registry, item: str, *, by: str, why: str = "", ticket: str = "") -> int:
    """Stop the item for all components, and cancel its waiting jobs. Returns how many jobs were cancelled.

    A running job goes on. Raises ItemConflict where the item was stopped before.
    """
    if not repair(registry, by, why).stop(item):
        raise ItemConflict(f"{item} is stopped already")
    _note(registry, "stop", item, by, why, ticket, after="stopped")
    waiting = list(_waiting(registry, item))
    for job_id in waiting:
        registry.coordinator.cancel(job_id, by=by, why=why or "its item was stopped")
    return len(waiting)


@refuses_viewers
def approve(registry: Registry, batch: str, *, by: str, why: str = "", ticket: str = "") -> Outcomes:
    """Approve the highest flagged round trip of a batch."""
    outcomes = approve_batch(registry.items, batch, by=by, why=why)
    for item, outcome in outcomes.items():
        _note(registry, "approve", item, by, why, ticket, after=outcome)
    return outcomes


def _note(
    registry: Registry, verb: str, item: str, by: str, why: str, ticket: str, before: str = "", after: str = ""
) -> None:
    act = {"by": by, "why": why, "ticket": ticket}
    registry.coordinator.acted(verb, "item", item, id=uuid.uuid4().hex, before=before, after=after, **act)


def _names(events: Iterable[ItemEvent]) -> str:
    return ", ".join(event.type for event in events)


def _waiting(registry: Registry, item: str) -> Iterator[str]:
    """The jobs that wait for their turn on the item."""
    for component in registry.all():
        lane = registry.coordinator.lane(component.lane_of(item), 1)
        if lane.jobs and lane.state in WAITS:
            yield lane.jobs[0]


def _lanes(registry: Registry, prefix: str) -> Iterator[Lane]:
    after = ""
    while True:
        page = registry.coordinator.lanes(prefix, most=PAGE, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key


def _front(registry: Registry, lane: Lane) -> Job | None:
    """The first job of the lane; None where it has left meanwhile, or a lock in plain code has the lane."""
    try:
        return registry.coordinator.job(lane.jobs[0]) if lane.jobs else None
    except UnknownJob:
        return None
