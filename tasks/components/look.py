"""The lanes say which items a component works on. An operator's acts reach what waits in them, too."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from coordinator import Job, UnknownJob
from coordinator.lanes.lane import Lane
from tasks.batches import Conflict
from tasks.batches.repair import Repair
from tasks.components.declaration import Component
from tasks.components.poll import priority_of
from tasks.components.registry import Registry

PAGE = 1000
WAITS = ("waiting", "ready")


class Working(NamedTuple):
    """A component works on an item. `node` is None while the job is between two attempts."""

    component: str
    item: str
    node: str | None
    job: str
    since: datetime | None


def working(here: Registry, component: Component) -> list[Working]:
    """The items that it works on now, the longest first. Items that wait are not among them."""
    found = []
    for lane in _lanes(here, component.lane_of("")):
        job = _front(here, lane)
        if job is not None and job.state not in WAITS:
            item = lane.key.removeprefix(component.lane_of(""))
            found.append(Working(component.name, item, job.node, job.id, job.started or job.taken))
    return sorted(found, key=lambda one: (one.since is None, one.since and one.since.timestamp(), one.item))


def at_work(here: Registry, item: str) -> str | None:
    """The component that works on the item now, as people read it; None: no component does."""
    for component in here.all():
        lane = here.coordinator.lane(component.lane_of(item), 1)
        if lane.state not in ("empty", *WAITS):
            return f"{component.name} works on it ({lane.holder or lane.jobs[0]}, {lane.state})"
    return None


def repair(here: Registry, by: str, why: str = "") -> Repair:
    return Repair(here.items, here.depends_on(), lambda item: at_work(here, item), by, why)


def prioritise(here: Registry, item: str, priority: int | None, *, by: str, why: str = "") -> int:
    """Give the item another priority, and its waiting jobs, too. Returns how many of them were moved."""
    here.items.prioritise(item, priority)
    moved = 0
    for job_id in _waiting(here, item):
        try:
            here.coordinator.move(job_id, priority=priority_of(priority), by=by, why=why)
            moved += 1
        except (UnknownJob, ValueError):  # it was started meanwhile
            continue
    return moved


def stop(here: Registry, item: str, *, by: str, why: str = "") -> int:
    """Stop the item for all components, and cancel its waiting jobs. Returns how many were cancelled.

    A job that runs goes on to its end. Raises Conflict where the item was stopped before.
    """
    if not repair(here, by, why).stop(item):
        raise Conflict(f"{item} is stopped already")
    waiting = list(_waiting(here, item))
    for job_id in waiting:
        here.coordinator.cancel(job_id, by=by, why=why or "its item was stopped")
    return len(waiting)


def _waiting(here: Registry, item: str) -> Iterator[str]:
    """The jobs that wait for their turn on the item."""
    for component in here.all():
        lane = here.coordinator.lane(component.lane_of(item), 1)
        if lane.jobs and lane.state in WAITS:
            yield lane.jobs[0]


def _lanes(here: Registry, prefix: str) -> Iterator[Lane]:
    after = ""
    while True:
        page = here.coordinator.lanes(prefix, most=PAGE, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key


def _front(here: Registry, lane: Lane) -> Job | None:
    """The job in front; None where it has left the lane meanwhile, and for a lock in plain code."""
    try:
        return here.coordinator.job(lane.jobs[0]) if lane.jobs else None
    except UnknownJob:
        return None
