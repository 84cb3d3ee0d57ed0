"""Components on one node: each child stores one event, and says what came of its item."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete

from coordinator import Job
from tasks.batches import Event, Items, NewEvent
from tasks.batches.schema import metadata
from tests.harness.fleet import Fleet
from tests.harness.standing import Node

NODE = Node("press", 4, settings={"lock_ttl": 2, "sweep": 0.1, "heartbeat": 0.5})


@pytest.fixture
def press(fleet: Fleet) -> Any:
    """The module of the app, and an empty store."""
    press = fleet.app("press")
    with press.components.items.engine.begin() as connection:
        for table in metadata.tables.values():
            connection.execute(delete(table))
    return press


@pytest.fixture
def items(press: Any) -> Items:
    return press.components.items


def deliver(items: Items, *names: str, does: str = "", priority: int | None = None) -> None:
    """Items that a component may begin with; `does`: for the checker."""
    now = datetime.now(UTC)
    for name in names:
        items.register(name, directory=does, priority=priority)
        items.begin("delivery", name, fence=1)
        items.append(NewEvent(name, "Data_Received", True, "delivery", "1", "1", 1, 1, now, now))


def run(press: Any, name: str = "Checker") -> Job:
    """A run of the component, once it is over."""
    component = press.components[name]
    signature = press.components.signature("tasks.components.poll", name)
    made = press.coordinator.submit(component.run_lane, signature, when_busy="skip")
    return press.coordinator.wait(made.job_id, 60)  # type: ignore[no-any-return]


def event(items: Items, item: str, kind: str = "Checked") -> Event:
    (found,) = (one for one in items.events(item) if one.type == kind)
    return found


def kinds(found: Event) -> list[str]:
    return [failure.type for failure in found.report.failures]


def test_each_item_has_one_event_and_the_run_lists_what_came_of_it(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", "B2-RT1")
    deliver(items, "B3-RT1", does="fail 5")
    deliver(items, "B4-RT1", does="raise")
    deliver(items, "B5-RT1", does="not-yet")
    job = run(press)
    assert job.state == "succeeded"
    assert {one["item"]: one["outcome"] for one in job.result} == {
        "B1-RT1": "succeeded", "B2-RT1": "succeeded", "B3-RT1": "failed", "B4-RT1": "failed", "B5-RT1": "not yet",
    }  # fmt: skip
    assert event(items, "B1-RT1").success
    holes = event(items, "B3-RT1")
    assert (holes.success, holes.agent, holes.report.found, holes.report.text) == (
        False,
        "Checker-1.0",
        5,
        "it has holes",
    )
    assert [failure.file for failure in holes.report.failures] == ["page-0", "page-1"], "at most max_results of them"
    assert kinds(event(items, "B4-RT1")) == ["exception"]
    assert [one.type for one in items.events("B5-RT1")] == ["Data_Received"]
    again = run(press)
    assert [one["item"] for one in again.result] == ["B5-RT1"], "it asks again, and a failed item is parked"


def test_an_attempt_that_ends_without_a_word_ends_as_a_failed_event(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="kill")
    deliver(items, "B2-RT1", does="infrastructure")
    deliver(items, "B3-RT1", does="sleep 30")
    job = run(press)
    assert (job.state, job.error["type"]) == ("failed", "SubResultFailed")
    assert kinds(event(items, "B1-RT1")) == ["lost"]
    assert kinds(event(items, "B2-RT1")) == ["infrastructure"]
    assert kinds(event(items, "B3-RT1")) == ["timeout"]
    assert not press.coordinator.lanes("Checker/"), "no lock outlives its job"
