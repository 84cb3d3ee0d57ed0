"""Backends, brokers, callbacks and imports that hang: no node dies of it, no job is lost, nothing else waits."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

SHORT: dict[str, Any] = {"sweep": 0.1, "lock_ttl": 6, "node_ttl": 4, "heartbeat": 0.5, "retry_delay": 0.01}


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def lives_for(fleet: Fleet, seconds: float, *names: str) -> None:
    """Each of the nodes is there each time that we look."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert set(names) <= set(fleet.nodes())
        time.sleep(0.05)


def test_a_result_backend_that_hangs_costs_no_node_its_life_and_no_job_its_attempt(fleet: Fleet, mute: str) -> None:
    fleet.configure(**SHORT)
    fleet.worker("one", 1, TEST_BACKEND=mute)
    submit = fleet.coordinator.submit
    submit("a", fleet.shop.work.s("hangs"), job_id="hangs")
    submit("b", fleet.shop.work.s("behind"), job_id="behind", time_limit=20, max_attempts=1, max_losses=0)
    submit("c", fleet.shop.work.s("owed").set(countdown=3600), job_id="owed")
    assert fleet.coordinator.wait("hangs", 60).state == "succeeded"
    fleet.coordinator.cancel("owed")  # its result hangs in maintenance
    behind = fleet.coordinator.wait("behind", 60)
    assert (behind.state, behind.attempt, behind.losses) == ("succeeded", 1, 0), "no result holds it up"
    lives_for(fleet, 6, "one@test")


def test_a_killed_supervisor_is_back_long_before_the_app_is_imported(fleet: Fleet) -> None:
    """The app needs longer for its import than a node may be silent."""
    fleet.configure(**SHORT | {"lock_ttl": 10})
    worker = fleet.worker("one", 1, TEST_IMPORT="15")
    fleet.coordinator.submit("a", fleet.shop.work.s("long", 17), job_id="long", max_losses=0)
    fleet.begun("long")
    worker.supervisor().kill()
    wait_until(lambda: "the supervisor ended" in fleet.logs())
    assert fleet.coordinator.wait("long", 60).state == "succeeded"
    assert len(fleet.stamps("long", "begin")) == 1


def test_an_owed_result_goes_out_while_the_only_slot_is_busy_and_the_main_process_with_it(fleet: Fleet) -> None:
    fleet.worker("one", 1, pool="solo")
    fleet.coordinator.submit("a", fleet.shop.work.s("busy", 40))
    fleet.begun("busy")
    waiting = fleet.coordinator.submit("a", fleet.shop.work.s("never"))
    fleet.coordinator.cancel(waiting.id)
    wait_until(lambda: fleet.shop.app.AsyncResult(waiting.id).state == "REVOKED", 30, fleet.logs)
    assert fleet.stamps("busy", "end") == []
