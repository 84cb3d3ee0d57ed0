"""The database is away for longer than a child waits with its result."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.shared.components import deliver, event, kinds
from tests.fleet.shared.test_component_faults import server
from tests.fleet.test_components import QUICK, polled
from tests.harness.command import Call
from tests.harness.fleet import ALONE, Fleet
from tests.harness.postgres import PostgresServer
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

__all__ = ["server"]

NODE = Node("press", 2, ALONE, QUICK)
IMPATIENT = {"TEST_PATIENCE": "0.5", "TEST_RETRY": "4"}


@pytest.fixture(scope="module")
def environ(server: PostgresServer) -> Iterator[dict[str, str]]:
    with server.database() as name:
        yield IMPATIENT | {"TASKS_DATABASE_URL": server.url(name)}


def test_work_is_done_again_where_its_result_could_not_be_stored_in_time(
    fleet: Fleet, press: Any, server: PostgresServer
) -> None:
    deliver(press.components.items, "B1-RT1", does="wait")
    run = polled(press)
    fleet.begun("B1-RT1")
    server.kill()
    fleet.go("B1-RT1")
    wait_until(lambda: press.coordinator.job(f"{run}/B1-RT1").state == "retrying", what=fleet.logs)
    server.start()
    fleet.go("B1-RT1")
    assert press.coordinator.wait(run, 60).state == "succeeded"
    assert [one.type for one in press.components.items.events("B1-RT1")] == ["Data_Received", "Checked"]
    assert len(fleet.stamps("B1-RT1", "begin")) == 2


def test_a_result_that_no_attempt_could_store_is_counted_shown_and_in_the_end_recorded(
    fleet: Fleet, press: Any, command: Call, server: PostgresServer
) -> None:
    deliver(press.components.items, "B1-RT1", does="wait")
    run = polled(press)
    fleet.begun("B1-RT1")
    server.kill()
    fleet.go("B1-RT1")
    child = f"{run}/B1-RT1"
    wait_until(lambda: press.coordinator.job(child).state == "rolling_back", what=fleet.logs)
    assert press.coordinator.counts()["retries"] == 1
    shown = command("job", child).output
    assert "OperationalError" in shown
    server.start()
    assert press.coordinator.wait(run, 60).state == "failed"
    assert kinds(event(press.components.items, "B1-RT1")) == ["infrastructure"]
    wait_until(lambda: not press.coordinator.lanes("Checker/"))
