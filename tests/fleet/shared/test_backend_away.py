"""The results of jobs reach the backend, whatever fails meanwhile: it is away, it hangs, or the node is killed."""

import time
from collections.abc import Iterator

import pytest
from celery.result import AsyncResult

from tests.fleet.results import results_of
from tests.harness.fleet import Fleet, kill_all
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.standing import Node

NODE = Node("shop", 2, settings={"node_ttl": 4, "heartbeat": 0.5})
OTHER = "one@test"
BURST = 2000


@pytest.fixture(scope="module")
def backend(redis_server: RedisServer) -> Iterator[Proxy]:
    """Between the nodes and the result backend; this process reaches it itself."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def of_nodes(backend: Proxy) -> dict[str, str]:
    return {"TEST_BACKEND": backend.url(2)}


def test_results_are_stored_though_the_backend_fails_for_a_second(fleet: Fleet, backend: Proxy) -> None:
    told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(BURST))
    backend.cut()
    time.sleep(1.0)
    backend.heal()
    found = results_of(fleet, told).join_native(timeout=90)
    assert found == [number + 1 for number in range(BURST)]


def test_a_backend_that_hangs_holds_up_no_job(fleet: Fleet, backend: Proxy) -> None:
    backend.hold()
    began = time.monotonic()
    told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(100))
    for one in told:
        assert fleet.coordinator.wait(one.id, 60).state == "succeeded"
    assert time.monotonic() - began < 40
    backend.heal()
    assert results_of(fleet, told).join_native(timeout=60) == [number + 1 for number in range(100)]


def test_a_node_killed_between_an_outcome_and_its_result_leaves_that_to_another(fleet: Fleet, backend: Proxy) -> None:
    first = fleet.worker("first", TEST_BACKEND=backend.url(2))
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    backend.hold()
    told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(20))
    for one in told:
        fleet.coordinator.wait(one.id, 60)
    assert all(AsyncResult(one.id, app=fleet.shop.app).state == "PENDING" for one in told)
    kill_all(first)
    backend.heal()
    fleet.coordinator.undrain(OTHER)
    assert results_of(fleet, told).join_native(timeout=40) == [number + 1 for number in range(20)]
