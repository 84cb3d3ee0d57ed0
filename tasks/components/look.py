"""Reads from the lanes which items components work on; applies operators' commands to an item and its waiting jobs."""

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from coordinator import Author, Cause, Job, Lane, Quota, UnknownEntry, UnknownJob, Why
from coordinator.extending import (
    Acting,
    Answer,
    Codes,
    Given,
    Json,
    Option,
    QuotaClient,
    Thing,
    act_of,
    author_of,
    cause,
    next_tick,
    note_act,
    validation,
    verb,
    verbs_in,
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
_SAID = {
    "item.stopped": ("is stopped for every component", "item-remove id event"),
    "item.done": ("has all its events: {events:names}", ""),
    "item.at-work": ("has the component {component}, which {does}: job {job}", ""),
    "item.failed": ("failed in the component {component}, which made {event} of it", "item-restart id"),
    "item.eligible": ("is not asked for yet by {component}: {reasons:names}", ""),
    "item.lacks": ("keeps {component} waiting for {event}, {how}", ""),
    "item.has": ("is left out by {component}, since it has {event}", ""),
}
CODES = Codes(_SAID, lambda: verbs_in(sys.modules[__name__]))
ITEM = Thing("item", ("item",), ("id",), ("ID",), "/item")
BATCH = Thing("batch", ("batch",), ("batch",), ("BATCH",), "/items")
FROM = Option(
    "event", "Begin with this type of event  [the first failure].", metavar="TYPE", flag="--from", form="hidden"
)
TYPE = Option("event", default="", argument=True, metavar="TYPE")
FAILED = Option("failed", "The event is a failure.", kind=bool, default=False, choices={"": "no", "true": "yes"})
PRIORITY = Option(
    "priority", "1 goes first, 9 last; empty: none.", kind=int, least=1, most=9, argument=True, metavar="[PRIORITY]"
)
WAITS = ("waiting", "ready")


class Working(NamedTuple):
    """An item that a component works on. `job`: the id of the job. `node`: None while the job is between two attempts.

    `since`: when the attempt began; None: not known.
    """

    component: str
    item: str
    node: str | None
    job: str
    since: datetime | None


class ComponentCondition(TypedDict):
    """A component's declaration and state, as commands and pages show them.

    `working`: the items that it works on. `waiting`: how many jobs wait in its lane. `eligible`: how many items meet
    its conditions. `idle`: the reasons why it works on no item; [] if it works on one. `last_submitted`: how many jobs
    the last run submitted.
    """

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
    """Return the items that a component works on now, the longest at work first. Leaves out items whose jobs wait."""
    items = []
    for lane in _lanes(registry, component.lane_of("")):
        job = _front(registry, lane)
        if job is not None and job.state not in WAITS:
            item = lane.key.removeprefix(component.lane_of(""))
            items.append(Working(component.name, item, job.node, job.id, job.started or job.taken))
    return sorted(items, key=lambda work: (work.since is None, work.since and work.since.timestamp(), work.item))


def no_node(registry: Registry, component: Component) -> str:
    """Return a sentence why no node can run a component; "" if a living node has the component's tasks."""
    nodes = registry.coordinator.nodes()
    if any(f"{POLL}.{component.name}" in node.tasks for node in nodes):
        return ""
    names = ", ".join(node.name for node in nodes)
    return f"none of the living nodes has this component: {names}" if nodes else "no node is alive"


def idle(registry: Registry, component: Component, eligible: int) -> list[str]:
    """Return the reasons why a component works on no item. `eligible`: how many items meet its conditions."""
    if reasons := [reason for reason in _hindrances(registry, component) if reason]:
        return reasons
    return [f"{eligible} items are eligible: the next run submits them" if eligible else "no item is eligible"]


def _hindrances(registry: Registry, component: Component) -> Iterator[str]:
    """Yield reasons why a component works on no item, with "" between them: no node or beat has it, its schedule or its
    lanes are paused, its run is parked, or no item ever had an event of a type that it needs.
    """
    yield no_node(registry, component)
    try:
        paused = registry.coordinator.entries.entry(component.runs, 0).paused
        yield f"its schedule is paused by {paused['by']}: {paused['why'] or 'no reason given'}" if paused else ""
    except UnknownEntry:
        yield "no beat knows its schedule: start one, or run it by hand"
    for quota in QuotaClient(registry.coordinator.store).read_many([component.name, component.runs]):
        yield f"its quota {quota.name} is {why}" if (why := _why_closed(quota)) else ""
    parked = registry.coordinator.jobs(state="parked", task=f"{POLL}.{component.name}", most=1).jobs
    yield f"its run {parked[0].id} is parked until its children end" if parked else ""
    kinds = registry.items.kinds()
    known = kinds.union(other.event for other in registry.all())
    for kind in (*component.past, *component.past_failed):
        if kind not in kinds:
            yield f"no item ever had the event {kind}{validation.near(kind, known - {kind})}"


def _why_closed(quota: Quota) -> str:
    """The reason why nothing starts that uses the quota; "" where units are free, or in use."""
    if quota.cools_for:
        return f"cooling down for {quota.cools_for:.0f} s{_by(quota.cooled)}"
    return f"closed: it has no units{_by(quota.declared)}" if quota.concurrency == 0 else ""


def _by(act: Mapping[str, object] | None) -> str:
    return f", by {act['by']}: {act['why'] or 'no reason given'}" if act else ""


def condition(registry: Registry, component: Component) -> ComponentCondition:
    """What the component waits for, what it works on, or why it works on nothing."""
    last = runs.last(registry.items.engine, component.name)
    (quota,) = QuotaClient(registry.coordinator.store).read_many([component.name])
    items, eligible = [work.item for work in working(registry, component)], registry.items.count(component.wanted)
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
        "limit": component.simultaneous_processes if quota.concurrency is None else quota.concurrency,
        "working": items,
        "waiting": sum(lane.state in WAITS for lane in _lanes(registry, component.lane_of(""))),
        "eligible": eligible,
        "idle": [] if items else idle(registry, component, eligible),
        "last_run": last and last.at,
        "last_submitted": last and last.submitted,
        "next_run": next_tick(registry.coordinator.store, component.runs),
    }


def at_work(registry: Registry, item: str) -> str | None:
    """Return a sentence about the component and the job that work on an item now; None if no component does."""
    for component in registry.all():
        lane = registry.coordinator.lane(component.lane_of(item), 1)
        if lane.state not in ("empty", *WAITS):
            return f"{component.name} works on it ({[*lane.holders, *lane.jobs][0]}, {lane.state})"
    return None


def why(registry: Registry, item: str) -> Why:
    """Explain, for each component of the app, why it does not work on an item. Raises UnknownItem."""
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
    """Yield the causes why one component does not work on an item. `profile`: the item's."""
    thing, events, facts = f"item {item}", profile.events, {"component": component.name, "event": component.event}
    lane = registry.coordinator.lane(component.lane_of(item), 1)
    if lane.jobs:
        job_id = lane.jobs[0]
        does = "waits for its turn" if lane.state in WAITS else "works on it"
        yield cause("item.at-work", thing, [f"job {job_id}"], CODES, **facts, does=does, job=job_id)
        with suppress(UnknownJob):  # the job has ended since the lane was read
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
    """Yield a cause for each event that a component needs and an item lacks, and for each that the item may not have.

    `thing`: the item, as "item <id>". `events`: the item's newest event of each type.
    """
    awaited = [(kind, "which failed") for kind in component.past if kind in events and not events[kind].success]
    awaited += [(kind, "which is not there") for kind in component.past if kind not in events]
    awaited += [(kind, "as a failure") for kind in component.past_failed if kind not in events or events[kind].success]
    for kind, how in awaited:
        yield cause("item.lacks", thing, (), CODES, component=component.name, event=kind, how=how)
    for kind in component.future:
        if kind in events:
            yield cause("item.has", thing, (), CODES, component=component.name, event=kind)


def repair(registry: Registry, by: str | Author | None = None, why: str = "", ticket: str = "") -> Repair:
    """Return a Repair for the operator `by`, which writes each repair into the audit trail.

    `by` None: the user and host of this process. `why`: the reason. `ticket`: where people discuss it.
    """
    working, trail = partial(at_work, registry), partial(_note, registry, act_of(why, by, ticket))
    return Repair(registry.items, registry.depends_on(), working, author_of(by).name, why, trail)


def register(registry: Registry, item: str, kind: str, directory: str | None, priority: int | None) -> None:
    """Add an item of the type `kind`. Raises ItemConflict if it exists, ValueError if no component works on `kind`."""
    declared = registry.all()
    types = sorted({name for component in declared for name in component.types})
    if declared and kind not in types and all(component.types for component in declared):
        wrong = (
            f"type {kind!r}{validation.near(kind, types)}: no component works on it; they work on {', '.join(types)}"
        )
        raise ValueError(wrong)
    if not registry.items.register(item, type=kind, directory=directory, priority=priority):
        raise ItemConflict(f"{item} is registered already: coordinator items show {item}")


# Operators' commands. Each is in the audit trail, which is written while the item is locked. The item's history has
# removed events, too.


def _events(events: Sequence[ItemEvent], did: str) -> list[str]:
    texts = (event.type if event.success else f"{event.type} FAILED" for event in events)
    return [f"{did} {text} of {instants.shown(event.ended)}" for text, event in zip(texts, events, strict=True)]


def _restarted(_: object, given: Given, removed: list[ItemEvent]) -> Answer:
    registry, item = given["registry"], given["item"]
    left = [event for event in repair(registry).failures(item) if event not in removed]
    lines = [*_events(removed, "removed"), starts(registry, item, removed)]
    lines += [f"{line.removeprefix('. ')} stays: it depends on none of these" for line in _events(left, ".")]
    return {"item": item, "removed": [event.type for event in removed]}, "\n".join(lines)


def _restart_plan(_: object, given: Given) -> list[str]:
    registry, item = given["registry"], given["item"]
    events = repair(registry).restart(item, given["event"], dry_run=True)
    return [*_events(events, "would remove"), starts(registry, item, events)]


def _removed(_: object, given: Given, removed: list[ItemEvent]) -> Answer:
    return {"item": given["item"], "removed": [event.type for event in removed]}, "\n".join(_events(removed, "removed"))


def _appended(_: object, given: Given, done: None) -> Answer:
    text = f"{given['item']} has {given['event']}{' FAILED' * given['failed']}"
    return {"item": given["item"], "event": given["event"], "failed": given["failed"]}, text


def _stopped(_: object, given: Given, cancelled: int) -> Answer:
    item, working = given["item"], at_work(given["registry"], given["item"])
    lines = [f"{item} is stopped; {cancelled} waiting jobs were cancelled"]
    lines += [f"{working}: that goes on to its end"] if working else []
    return {"item": item, "cancelled": cancelled, "working": working}, "\n".join(lines)


def _prioritised(_: object, given: Given, moved: int) -> Answer:
    item, priority = given["item"], given["priority"]
    text = f"{item} has {f'priority {priority}' if priority else 'no priority'}; {moved} waiting jobs were moved"
    return {"item": item, "priority": priority, "moved": moved}, text


def _approved(_: object, given: Given, outcomes: Outcomes) -> Answer:
    return {"batch": given["batch"], "outcomes": {**outcomes}}, "\n".join(map(" ".join, outcomes.items()))


@verb(ITEM, FROM, tell=_restarted, name="item-restart", command="items restart", title="Restart", grave=True,
      plan=_restart_plan)  # fmt: skip
def restart(registry: Registry, item: str, event: str | None = None, **acting: Unpack[Acting]) -> list[ItemEvent]:
    """Remove the first failed event of an item and all events that depend on it: components then work on it again.

    `event`: begin with the events of this type instead. Gives the removed events. Raises UnknownItem, ItemConflict.
    """
    return repair(registry, **acting).restart(item, event)


def starts(registry: Registry, item: str, gone: Sequence[ItemEvent] = ()) -> str:
    """Return a sentence that names the components that will work on an item once the events in `gone` are removed."""
    profile, kinds = registry.items.profiles([item])[item], {event.type for event in gone}
    left = Profile(profile.type, {kind: event for kind, event in profile.events.items() if kind not in kinds})
    names = [component.name for component in registry.all() if component.wanted.fits(left)]
    return f"then starts {', '.join(names)}" if names else "then starts nothing: it meets no component's conditions"


@verb(ITEM, TYPE, tell=_removed, name="item-remove", command="items remove", title="Remove events", grave=True)
def remove(registry: Registry, item: str, event: str, **acting: Unpack[Acting]) -> list[ItemEvent]:
    """Remove an item's events of one type; the history keeps them.

    Gives the removed events. Raises UnknownItem, ItemConflict.
    """
    return repair(registry, **acting).remove(item, event)


@verb(ITEM, TYPE, FAILED, tell=_appended, name="item-append", command="items append", title="Append an event")
def append(registry: Registry, item: str, event: str, *, failed: bool = False, **acting: Unpack[Acting]) -> None:
    """Append an event to an item by hand.

    `event`: the type of the event. `failed`: the event is a failure. Raises UnknownItem, ItemConflict, ValueError.
    """
    repair(registry, **acting).add(item, event, success=not failed)


@verb(ITEM, PRIORITY, tell=_prioritised, name="item-priority", command="items prioritise", title="Priority")
def prioritise(registry: Registry, item: str, priority: int | None = None, **acting: Unpack[Acting]) -> int:
    """Give an item a priority, 1 to 9, or none, and move its waiting jobs in their lanes accordingly.

    Gives the number of moved jobs. Raises UnknownItem.
    """
    if (before := registry.items.item(item).priority) != priority:
        noted = {"id": uuid.uuid4().hex, "before": str(before or "none"), "after": str(priority or "none")}
        registry.coordinator.acted("prioritise", "item", item, **noted, **acting)
        registry.items.prioritise(item, priority)
    moved = 0
    for job_id in _waiting(registry, item):
        try:
            registry.coordinator.move(job_id, priority=priority_of(priority), **acting)
            moved += 1
        except (UnknownJob, ValueError):  # the job has started or ended since the lane was read
            continue
    return moved


@verb(ITEM, tell=_stopped, name="item-stop", command="items stop", title="Stop")
def stop(registry: Registry, item: str, **acting: Unpack[Acting]) -> int:
    """Stop an item for all components: none begins work on it, and its waiting jobs are cancelled.

    A running job goes on. A repeated call cancels jobs that wait since. Gives the number of cancelled jobs. Raises
    UnknownItem.
    """
    repair(registry, **acting).stop(item)
    waiting = list(_waiting(registry, item))
    for job_id in waiting:
        registry.coordinator.cancel(job_id, by=acting.get("by"), why=acting.get("why") or "its item was stopped")
    return len(waiting)


@verb(BATCH, tell=_approved, name="batch-approve", command="items approve", title="Approve")
def approve(registry: Registry, batch: str, **acting: Unpack[Acting]) -> Outcomes:
    """Approve the highest round trip of a batch that has the event Manual_QA_Flagged.

    Gives the outcome of each round trip that it changed. Raises ItemConflict.
    """
    by, trail = author_of(acting.get("by")).name, partial(_note, registry, act_of(**acting))
    return approve_batch(registry.items, batch, by=by, why=acting.get("why", ""), trail=trail)


def _note(registry: Registry, act: str, verb: str, item: str, version: str, before: str, after: str) -> None:
    """Write an operator's change of an item into the audit trail. `version`: the version of the item's events.

    Raises InvalidJob if another operator has written the same change of the same version within the last minute.
    """
    name = f"{verb} {item} {version}"
    note_act(registry.coordinator.store, verb, "item", item, name, act, before, after, seconds=60)


def _waiting(registry: Registry, item: str) -> Iterator[str]:
    """Yield the ids of the jobs, one a component at most, that wait to work on an item."""
    for component in registry.all():
        lane = registry.coordinator.lane(component.lane_of(item), 1)
        if lane.jobs and lane.state in WAITS:
            yield lane.jobs[0]


def _lanes(registry: Registry, prefix: str) -> Iterator[Lane]:
    """Yield all lanes whose keys begin with `prefix`."""
    after = ""
    while True:
        page = registry.coordinator.lanes(prefix, most=PAGE, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key


def _front(registry: Registry, lane: Lane) -> Job | None:
    """Read the first job of a lane. None: it has left the lane since, or a lock in plain code holds the lane."""
    try:
        return registry.coordinator.job(lane.jobs[0]) if lane.jobs else None
    except UnknownJob:
        return None
