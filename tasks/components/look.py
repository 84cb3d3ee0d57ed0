"""Reads from the lanes which items components work on, and applies operators' acts to an item and its waiting jobs."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from coordinator import Job, Lane, UnknownJob
from tasks.batches import ItemConflict
from tasks.batches.repair import Repair
from tasks.components.declaration import Component
from tasks.components.poll import priority_of
from tasks.components.registry import Registry

PAGE = 1000
WAITS = ("waiting", "ready")


class Working(NamedTuple):
    """An item that a component works on. `node` is None while the job is between two attempts."""

    component: str
    item: str
    node: str | None
    job: str
    since: datetime | None


def working(registry: Registry, component: Component) -> list[Working]:
    """The items that the component works on now, the longest first. Items that wait are not among them."""
    items = []
    for lane in _lanes(registry, component.lane_of("")):
        job = _front(registry, lane)
        if job is not None and job.state not in WAITS:
            item = lane.key.removeprefix(component.lane_of(""))
            items.append(Working(component.name, item, job.node, job.id, job.started or job.taken))
    return sorted(items, key=lambda work: (work.since is None, work.since and work.since.timestamp(), work.item))


def at_work(registry: Registry, item: str) -> str | None:
    """A sentence about the component that works on the item now; None where none does."""
    for component in registry.all():
        lane = registry.coordinator.lane(component.lane_of(item), 1)
        if lane.state not in ("empty", *WAITS):
            return f"{component.name} works on it ({[*lane.holders, *lane.jobs][0]}, {lane.state})"
    return None


def repair(registry: Registry, by: str, why: str = "") -> Repair:
    return Repair(registry.items, registry.depends_on(), lambda item: at_work(registry, item), by, why)


def prioritise(registry: Registry, item: str, priority: int | None, *, by: str, why: str = "") -> int:
    """Change the priority of the item and of its waiting jobs. Returns how many jobs were moved."""
    registry.items.prioritise(item, priority)
    moved = 0
    for job_id in _waiting(registry, item):
        try:
            registry.coordinator.move(job_id, priority=priority_of(priority), by=by, why=why)
            moved += 1
        except (UnknownJob, ValueError):  # the job has started meanwhile
            continue
    return moved


def stop(registry: Registry, item: str, *, by: str, why: str = "") -> int:
    """Stop the item for all components, and cancel its waiting jobs. Returns how many jobs were cancelled.

    A running job goes on. Raises ItemConflict where the item was stopped before.
    """
    if not repair(registry, by, why).stop(item):
        raise ItemConflict(f"{item} is stopped already")
    waiting = list(_waiting(registry, item))
    for job_id in waiting:
        registry.coordinator.cancel(job_id, by=by, why=why or "its item was stopped")
    return len(waiting)


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
