"""The run of a component: it queries the store for items, submits a child for each, and parks until all have ended."""

import logging
import time
from collections.abc import Iterator, Sequence

from coordinator import LeaseLost, Locked, Submission, SubmitOptions
from tasks import instants
from tasks.batches import Item, runs
from tasks.batches.values import NO_PRIORITY
from tasks.components.declaration import Component
from tasks.components.limits import set_limits
from tasks.components.registry import RECORD, WORK, Registry, this_job

WAIT, LEASE = 15.0, 10.0
"""Seconds: how long a run waits for the lock, and after how long the lock of a killed process ends."""
PAGE = 100
LATELY = 10
"""An item counts as begun lately during so many polls."""

logger = logging.getLogger(__name__)

PollResult = dict[str, str]


def poll(registry: Registry, component: Component) -> list[Submission] | PollResult:
    """Submit the children and return them, so that the run parks on them; or the outcome `busy` or `nothing to do`."""
    name, job = component.name, this_job()
    taken: list[Submission] = []
    try:
        # The lock may still be held by an earlier attempt of this run, whose process died.
        with registry.coordinator.lock(component.lock, ttl=LEASE, blocking_timeout=WAIT):
            set_limits(registry.coordinator, component)
            taken += _submit(registry, component, job.id)
    except Locked as held:
        logger.info("%s: %s; it polls again later", name, held)
        return {"component": name, "outcome": "busy"}
    except LeaseLost as lost:  # another run may have polled meanwhile: the lanes skip its second child of an item
        logger.warning("%s: %s; it goes on with its %d children", name, lost, len(taken))
    _note(registry, component, job.id, len(taken))
    return taken or {"component": name, "outcome": "nothing to do"}


def _note(registry: Registry, component: Component, run: str, submitted: int) -> None:
    """Note the run for operators. The children are submitted, whether or not the store takes the note."""
    try:
        runs.ran(registry.items.engine, component.name, job=run, submitted=submitted, now=instants.now())
    except registry.infrastructure_of(component) as error:
        logger.warning("%s: its run %s is not noted: %s", component.name, run, error)


def _submit(registry: Registry, component: Component, run: str) -> Iterator[Submission]:
    """Submit a child for each of the first items, in order, that no job has. Waiting items count towards `most`.

    Items begun lately that are still wanted count separately: where many raise NotYet, the others have their turn.
    """
    lately = round((time.time() - LATELY * component.every) * 1_000_000)
    left = {False: component.most, True: component.most}
    for page in _pages(registry, component):
        begun = registry.items.begun(component.name, [item.id for item in page], lately)
        first = {kind: [item for item in page if (item.id in begun) is kind][: left[kind]] for kind in left}
        some = [item for item in page if item in first[item.id in begun]]
        jobs = [(_keys(component, item), _child(registry, component, item), _options(registry, component, item, run))
                for item in some]  # fmt: skip
        for item, child in zip(some, registry.coordinator.submit_many(jobs), strict=True):
            if child.accepted:
                yield child
            left[child.accepted and item.id in begun] -= child.accepted or _is_in_line(child, item)
        if left[False] <= 0:
            return


def _is_in_line(skipped: Submission, item: Item) -> bool:
    """True if another child has the item; else a pause or a lock keeps its lane, and takes no place in line."""
    return skipped.of.endswith(f"/{item.id}")


def _pages(registry: Registry, component: Component) -> Iterator[Sequence[Item]]:
    """The wanted items in order, page by page."""
    after: str | None = None
    while True:
        page = registry.items.query(component.wanted, after, min(component.most, PAGE))
        yield page.items
        after = page.next
        if after is None:
            return


def _keys(component: Component, item: Item) -> list[str]:
    """The keys of a child. The first names the group for fair turns: each component is a group."""
    return [component.lane_of(item.id), component.name]


def _child(registry: Registry, component: Component, item: Item) -> dict[str, object]:
    return dict(registry.signature(WORK, component.name, item.id))


def _options(registry: Registry, component: Component, item: Item, run: str) -> SubmitOptions:
    return {
        "job_id": child_id(run, item.id),  # a later attempt of the run finds its children again
        "when_busy": {component.lane_of(item.id): "skip", component.name: "queue"},
        "priority": priority_of(item.priority),
        "max_losses": component.max_losses,
        "max_lifetime": component.max_lifetime,
        "time_limit": component.time_limit,
        "soft_time_limit": component.soft_time_limit,
        "rollback": dict(registry.signature(RECORD, component.name, item.id)),
    }


def priority_of(priority: int | None) -> int:
    """The priority of a job for an item of this priority: 1 goes first."""
    return 0 if priority is None else NO_PRIORITY - priority


def child_id(run: str, item: str) -> str:
    return f"{run}/{item}"
