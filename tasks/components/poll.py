"""The task of a component's run: queries the store for items, and submits a job, called a child, for each. The run is
then parked until all its children have ended.
"""

import logging
import time
from collections.abc import Iterator, Sequence

from coordinator import LeaseLost, Locked, Submission, SubmitOptions
from tasks import instants
from tasks.batches import Item, runs
from tasks.batches.values import NO_PRIORITY
from tasks.components.declaration import Component
from tasks.components.quotas import declare, declare_runs
from tasks.components.registry import POLL, RECORD, WORK, Registry, run_options, this_job

WAIT, LEASE = 15.0, 10.0
"""Seconds for which a run waits for the component's lock, and seconds after which the lock of a killed process ends."""
PAGE = 100
"""The most items that one query reads."""
LATELY = 10
"""For how many polls after a component has begun work on an item the item counts as begun lately."""

logger = logging.getLogger(__name__)

PollResult = dict[str, str]


def submit_run(registry: Registry, component: Component, job_id: str | None = None) -> Submission:
    """Submit a run. It polls while no other run of the component does."""
    declare_runs(registry.coordinator)
    options: SubmitOptions = {**run_options(component), "job_id": job_id}
    return registry.coordinator.submit([], registry.signature(POLL, component.name), **options)


def poll(registry: Registry, component: Component) -> list[Submission] | PollResult:
    """Submit a component's children and return them, so that the run is parked until they end.

    Without children, returns the outcome: `busy` if another run holds the component's lock, or `nothing to do`.
    """
    name, job = component.name, this_job()
    taken: list[Submission] = []
    try:
        # An earlier attempt of this run, whose process died, may still hold the lock.
        with registry.coordinator.lock(component.lock, ttl=LEASE, blocking_timeout=WAIT):
            declare(registry.coordinator, component)
            taken += _submit(registry, component, job.id)
    except Locked as held:
        logger.info("%s: another run polls: %s; a later run polls again", name, held)
        return {"component": name, "outcome": "busy"}
    except LeaseLost as lost:  # another run may poll, too: a lane skips a second child for the same item
        logger.warning("%s: %s; the run goes on with its %d children", name, lost, len(taken))
    _note(registry, component, job.id, len(taken))
    return taken or {"component": name, "outcome": "nothing to do"}


def _note(registry: Registry, component: Component, run: str, submitted: int) -> None:
    """Store the run's job and number of children, for operators. If the database is away, only logs a warning."""
    try:
        runs.ran(registry.items.engine, component.name, job=run, submitted=submitted, now=instants.now())
    except registry.infrastructure_of(component) as error:
        logger.warning("%s: cannot store that it ran (run %s): %s", component.name, run, error)


def _submit(registry: Registry, component: Component, run: str) -> Iterator[Submission]:
    """Submit a child for each wanted item that has none, in order, until `component.most` children wait.

    Items that were begun lately and still meet the conditions are counted apart, up to the same number: if the
    component raises NotYet for many items, it still gets others. `run`: the id of the run's job.
    """
    lately = round((time.time() - LATELY * component.every) * 1_000_000)
    left = {False: component.most, True: component.most}
    for page in _pages(registry, component):
        begun = registry.items.begun(component.name, [item.id for item in page], lately)
        first = {kind: [item for item in page if (item.id in begun) is kind][: left[kind]] for kind in left}
        some = [item for item in page if item in first[item.id in begun]]
        jobs = [
            (
                component.lane_of(item.id),
                _child(registry, component, item),
                _options(registry, component, item, run),
            )
            for item in some
        ]
        for item, child in zip(some, registry.coordinator.submit_many(jobs), strict=True):
            if child.accepted:
                yield child
            left[child.accepted and item.id in begun] -= child.accepted or _is_in_line(child, item)
        if left[False] <= 0:
            return


def _is_in_line(skipped: Submission, item: Item) -> bool:
    """True if a child for the item was skipped since another child waits or runs in the item's lane.

    False: since the lane is paused, or a lock holds it. `skipped`: what the submit returned.
    """
    return skipped.of.endswith(f"/{item.id}")


def _pages(registry: Registry, component: Component) -> Iterator[Sequence[Item]]:
    """Yield the items that meet the component's conditions, page by page, by priority, then age."""
    after: str | None = None
    while True:
        page = registry.items.query(component.wanted, after, min(component.most, PAGE))
        yield page.items
        after = page.next
        if after is None:
            return


def _child(registry: Registry, component: Component, item: Item) -> dict[str, object]:
    return dict(registry.signature(WORK, component.name, item.id))


def _options(registry: Registry, component: Component, item: Item, run: str) -> SubmitOptions:
    return {
        "job_id": child_id(run, item.id),  # a later attempt of the run finds its children again
        "when_busy": "skip",
        "uses": component.uses,
        "priority": priority_of(item.priority),
        "max_losses": component.max_losses,
        "max_lifetime": component.max_lifetime,
        "time_limit": component.time_limit,
        "soft_time_limit": component.soft_time_limit,
        "rollback": dict(registry.signature(RECORD, component.name, item.id)),
    }


def priority_of(priority: int | None) -> int:
    """Return the priority of an item's job, 9 (first) to 1, or 0. `priority`: the item's, 1 (first) to 9, or None."""
    return 0 if priority is None else NO_PRIORITY - priority


def child_id(run: str, item: str) -> str:
    return f"{run}/{item}"
