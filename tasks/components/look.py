"""Reads from the lanes which items components work on, and applies operators' acts to an item and its waiting jobs."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from coordinator import Author, Cause, Job, Lane, UnknownEntry, UnknownJob, Why
from coordinator.extending import (
    Acting,
    Codes,
    Json,
    act_of,
    author_of,
    cause,
    next_tick,
    note_act,
    refuses_viewers,
    validation,
    why_closed,
)
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
_COMMANDS = {
    "item-restart": ("items restart", "{id:sh}"),
    "item-remove": ("items remove", "{id:sh} {event:sh}"),
}
_SAID = {
    "item.stopped": ("is stopped for every component", "item-remove id event"),
    "item.done": ("has all its events: {events:names}", ""),
    "item.at-work": ("has the component {component}, which {does}: job {job}", ""),
    "item.failed": ("failed in the component {component}, which made {event} of it", "item-restart id"),
    "item.eligible": ("is not asked for yet by {component}: {reasons:names}", ""),
    "item.lacks": ("keeps {component} waiting for {event}, {how}", ""),
    "item.has": ("is left out by {component}, since it has {event}", ""),
}
CODES = Codes(_SAID, _COMMANDS)
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
        yield f"its lane {lane.key} is {why}" if (why := why_closed(lane)) else ""
        yield f"its run {lane.jobs[0]} is parked until its children end" if lane.state == "parked" else ""
    kinds = registry.items.kinds()
    known = kinds.union(other.event for other in registry.all())
    for kind in (*component.past, *component.past_failed):
        if kind not in kinds:
            yield f"no item ever had the event {kind}{validation.near(kind, known - {kind})}"


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
        causes.insert(0, cause("item.stopped", thing, (), CODES, id=item, event=STOPPED))
    done: list[Json] = [component.event for component in registry.all() if component.event in profile.events]
    causes = causes or [cause("item.done", thing, (), CODES, events=done or ["none is made"])]
    return Why(thing, causes[0].text, tuple(causes), instants.now())


def _causes(registry: Registry, component: Component, item: str, profile: Profile) -> Iterator[Cause]:
    thing, events, facts = f"item {item}", profile.events, {"component": component.name, "event": component.event}
    lane = registry.coordinator.lane(component.lane_of(item), 1)
    if lane.jobs:
        job_id = lane.jobs[0]
        does = "waits for its turn" if lane.state in WAITS else "works on it"
        yield cause("item.at-work", thing, [f"job {job_id}"], CODES, **facts, does=does, job=job_id)
        with suppress(UnknownJob):  # it ends just now
            yield from registry.coordinator.why(job_id).causes
        return
    made = events.get(component.event)
    if made is not None and not made.success:
        yield cause("item.failed", thing, (), CODES, **facts, id=item)
    elif component.wanted.fits(profile):
        yield cause("item.eligible", thing, (), CODES, **facts, reasons=[*idle(registry, component, 1)])
    elif made is None and (not component.types or profile.type in component.types):
        yield from _lacks(component, thing, events)


def _lacks(component: Component, thing: str, events: Mapping[str, Newest]) -> Iterator[Cause]:
    """The events for which the component waits, or that keep it away."""
    awaited = [(kind, "which failed") for kind in component.past if kind in events and not events[kind].success]
    awaited += [(kind, "which is not there") for kind in component.past if kind not in events]
    awaited += [(kind, "as a failure") for kind in component.past_failed if kind not in events or events[kind].success]
    for kind, how in awaited:
        yield cause("item.lacks", thing, (), CODES, component=component.name, event=kind, how=how)
    for kind in component.future:
        if kind in events:
            yield cause("item.has", thing, (), CODES, component=component.name, event=kind)


def repair(registry: Registry, by: str | Author | None = None, why: str = "", ticket: str = "") -> Repair:
    """The repairs of this operator, each with its line in the audit trail."""
    working, trail = partial(at_work, registry), partial(_note, registry, act_of(why, by, ticket))
    return Repair(registry.items, registry.depends_on(), working, author_of(by).name, why, trail)


def register(registry: Registry, item: str, kind: str, directory: str | None, priority: int | None) -> None:
    """Register an item. Raises ItemConflict where it is there, and ValueError where no component works on its type."""
    declared = registry.all()
    types = sorted({name for component in declared for name in component.types})
    if declared and kind not in types and all(component.types for component in declared):
        wrong = (
            f"type {kind!r}{validation.near(kind, types)}: no component works on it; they work on {', '.join(types)}"
        )
        raise ValueError(wrong)
    if not registry.items.register(item, type=kind, directory=directory, priority=priority):
        raise ItemConflict(f"{item} is registered already: coordinator items show {item}")


# Acts of operators. The audit trail has each, noted while the item is locked; the history of the item has repairs, too.


@refuses_viewers
def restart(
    registry: Registry, item: str, kind: str | None = None, *, dry_run: bool = False, **acting: Unpack[Acting]
) -> list[ItemEvent]:
    """Remove the first failure, or the events of `kind`, and all that depend on them; give them. See Repair."""
    return repair(registry, **acting).restart(item, kind, dry_run=dry_run)


def starts(registry: Registry, item: str, gone: Sequence[ItemEvent] = ()) -> str:
    """A sentence about the components whose next run works on the item, once these events are gone."""
    profile, kinds = registry.items.profiles([item])[item], {event.type for event in gone}
    left = Profile(profile.type, {kind: event for kind, event in profile.events.items() if kind not in kinds})
    names = [component.name for component in registry.all() if component.wanted.fits(left)]
    return f"then starts {', '.join(names)}" if names else "then starts nothing: no component wants it"


@refuses_viewers
def remove(registry: Registry, item: str, kind: str, **acting: Unpack[Acting]) -> list[ItemEvent]:
    """Remove the events of one type; give them. See Repair."""
    return repair(registry, **acting).remove(item, kind)


@refuses_viewers
def append(registry: Registry, item: str, kind: str, *, success: bool = True, **acting: Unpack[Acting]) -> None:
    """Append an event by hand. See Repair."""
    repair(registry, **acting).add(item, kind, success=success)


@refuses_viewers
def prioritise(registry: Registry, item: str, priority: int | None, **acting: Unpack[Acting]) -> int:
    """Change the priority of the item and of its waiting jobs. Returns how many jobs were moved."""
    if (before := registry.items.item(item).priority) != priority:
        noted = {"id": uuid.uuid4().hex, "before": str(before or "none"), "after": str(priority or "none")}
        registry.coordinator.acted("prioritise", "item", item, **noted, **acting)
        registry.items.prioritise(item, priority)
    moved = 0
    for job_id in _waiting(registry, item):
        try:
            registry.coordinator.move(job_id, priority=priority_of(priority), **acting)
            moved += 1
        except (UnknownJob, ValueError):  # the job has started meanwhile
            continue
    return moved


@refuses_viewers
def stop(registry: Registry, item: str, **acting: Unpack[Acting]) -> int:
    """Stop the item for all components, and cancel its waiting jobs. Returns how many jobs were cancelled.

    A running job goes on. Given again, it cancels what still waits.
    """
    repair(registry, **acting).stop(item)
    waiting = list(_waiting(registry, item))
    for job_id in waiting:
        registry.coordinator.cancel(job_id, by=acting.get("by"), why=acting.get("why") or "its item was stopped")
    return len(waiting)


@refuses_viewers
def approve(registry: Registry, batch: str, **acting: Unpack[Acting]) -> Outcomes:
    """Approve the highest flagged round trip of a batch."""
    by, trail = author_of(acting.get("by")).name, partial(_note, registry, act_of(**acting))
    return approve_batch(registry.items, batch, by=by, why=acting.get("why", ""), trail=trail)


def _note(registry: Registry, act: str, verb: str, item: str, version: str, before: str, after: str) -> None:
    """Write the act on the item of this version into the trail. While one author's is noted, another's is refused."""
    name = f"{verb} {item} {version}"
    note_act(registry.coordinator.store, verb, "item", item, name, act, before, after, seconds=60)


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
