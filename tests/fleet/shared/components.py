"""Runs of the components of `tests.harness.apps.press`, and the items that they work on."""

from datetime import UTC, datetime
from typing import Any

from coordinator import Job
from tasks.batches import ItemEvent, Items, NewEvent
from tasks.components import poll

POLL = "tasks.components.poll"


def deliver(items: Items, *names: str, does: str = "", priority: int | None = None) -> None:
    """Items that a component may begin with; `does`: for the checker."""
    now = datetime.now(UTC)
    for name in names:
        items.register(name, directory=does, priority=priority)
        items.begin("delivery", name, fence=1)
        items.append(NewEvent(name, "Data_Received", True, "delivery", "1", "1", 1, 1, now, now))


def run(press: Any, name: str = "Checker") -> Job:
    """A run of the component, once it is over."""
    made = poll.submit_run(press.components, press.components[name])
    return press.coordinator.wait(made.id, 60)  # type: ignore[no-any-return]


def event(items: Items, item: str, kind: str = "Checked") -> ItemEvent:
    (found,) = (one for one in items.events(item) if one.type == kind)
    return found


def kinds(found: ItemEvent) -> list[str]:
    return [failure.type for failure in found.report.failures]
