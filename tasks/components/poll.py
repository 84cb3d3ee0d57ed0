"""One run of a component: it asks the store for items, submits a job for each, and parks until all have ended."""

import logging
from collections.abc import Iterator
from itertools import chain, islice

from coordinator import LeaseLost, Locked, Submission, current_job
from coordinator.jobs.options import Options
from tasks.batches import Item, runs
from tasks.batches.values import NO_PRIORITY
from tasks.components.declaration import Component
from tasks.components.limits import set_limits
from tasks.components.registry import RECORD, WORK, Registry
from tasks.member_node import instants

WAIT, LEASE = 5.0, 10.0
"""Seconds for which a run waits for the lock, and those after which the lock of a process that was killed ends."""
PAGE = 100

logger = logging.getLogger(__name__)

Polled = dict[str, str]


def poll(here: Registry, name: str) -> list[Submission] | Polled:
    """The children, on which the run parks; else an outcome: `busy`, or `nothing to do`."""
    component, job = here[name], current_job()
    run, again = job.id if job else "", bool(job and job.attempt > 1)
    taken: list[Submission] = []
    try:
        # The lock may still be that of the process with which this run was lost.
        with here.coordinator.lock(component.lock, ttl=LEASE, wait=LEASE + WAIT if again else WAIT):
            set_limits(here.coordinator, component)
            here.items.count_the_rest()
            taken += _submit(here, component, run, again=again)
    except Locked as held:
        logger.info("%s: %s; it polls again later", name, held)
        return {"component": name, "outcome": "busy"}
    except LeaseLost as lost:  # another run may have looked meanwhile: the lanes keep the children of both apart
        logger.warning("%s: %s; it goes on with its %d children", name, lost, len(taken))
    _note(here, component, run, len(taken))
    return taken or {"component": name, "outcome": "nothing to do"}


def _note(here: Registry, component: Component, run: str, submitted: int) -> None:
    """For people. The children are there, whether or not the store takes the note."""
    try:
        runs.ran(here.items.engine, component.name, job=run, submitted=submitted, now=instants.now())
    except here.infrastructure_of(component) as error:
        logger.warning("%s: its run %s is not noted: %s", component.name, run, error)


def _submit(here: Registry, component: Component, run: str, *, again: bool) -> Iterator[Submission]:
    """A job for each item in order, as far as the line has room. An item that somebody works on is skipped.

    `again`: the run was lost, and those in line may be its own children, which it finds by their ids.
    """
    items = _wanted(here, component)
    first = next(items, None)
    if first is None:  # as most polls find
        return
    items, left = chain([first], items), component.most
    if not again:
        left -= here.coordinator.lane(component.name, 1).length
    while left > 0 and (some := list(islice(items, min(left, PAGE)))):
        jobs = [(_keys(component, item), _child(here, component, item), _options(here, component, item, run))
                for item in some]  # fmt: skip
        made = [one for one in here.coordinator.submit_many(jobs) if one.accepted]
        yield from made
        left -= len(made)


def _wanted(here: Registry, component: Component) -> Iterator[Item]:
    """The items in order. A page is asked for when the one before is used up."""
    after: str | None = None
    while True:
        page = here.items.query(component.wanted, after, min(component.most, PAGE))
        yield from page.items
        after = page.next
        if after is None:
            return


def _keys(component: Component, item: Item) -> list[str]:
    """The first one names the group that has turns: each component is one."""
    return [component.lane_of(item.id), component.name]


def _child(here: Registry, component: Component, item: Item) -> dict[str, object]:
    return dict(here.signature(WORK, component.name, item.id))


def _options(here: Registry, component: Component, item: Item, run: str) -> Options:
    options: Options = {
        "when_busy": {component.lane_of(item.id): "skip", component.name: "queue"},
        "priority": priority_of(item.priority),
        "max_losses": component.max_losses,
        "max_lifetime": component.max_lifetime,
        "time_limit": component.time_limit,
        "soft_time_limit": component.soft_time_limit,
        "rollback": dict(here.signature(RECORD, component.name, item.id)),
    }
    if run:  # a run that was lost and is begun again finds the children that it has
        options["job_id"] = child_id(run, item.id)
    return options


def priority_of(priority: int | None) -> int:
    """A job's, for an item's: 1 goes first."""
    return 0 if priority is None else NO_PRIORITY - priority


def child_id(run: str, item: str) -> str:
    return f"{run}/{item}"
