"""The results of jobs reach the backend: at once, many together, and whatever fails meanwhile."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.result import AsyncResult, ResultSet

from coordinator.jobs.submission import Submission
from tests.harness.fleet import Fleet, kill_all
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

BURST = 2000


@pytest.fixture
def backend(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def far(redis_server: RedisServer, prefix: str, tmp_path: Path, backend: Proxy) -> Iterator[Fleet]:
    """A fleet whose nodes reach the result backend through the proxy; this process reaches it itself."""
    with Fleet(redis_server, prefix, tmp_path) as fleet:
        yield fleet


def results_of(fleet: Fleet, told: list[Submission]) -> ResultSet:
    return ResultSet([AsyncResult(one.id, app=fleet.shop.app) for one in told], app=fleet.shop.app)


def test_a_burst_has_all_its_results_and_who_listens_hears_of_each(fleet: Fleet) -> None:
    fleet.worker()
    told = fleet.coordinator.submit_many((f"k{number % 50}", fleet.shop.add.s(1, number)) for number in range(500))
    heard: list[str] = []
    found = results_of(fleet, told).join_native(timeout=60, callback=lambda task_id, value: heard.append(task_id))
    assert found is None
    assert sorted(heard) == sorted(one.id for one in told)
    wait_until(lambda: not fleet.coordinator.store.read("EXISTS", fleet.coordinator.store.key("unsent", "shop")), 5)


def test_who_has_waited_for_a_job_finds_its_result(fleet: Fleet) -> None:
    fleet.worker()
    for number in range(20):
        told = fleet.coordinator.submit(f"k{number}", fleet.shop.add.s(1, number))
        fleet.coordinator.wait(told.id, 20)
        assert fleet.shop.app.AsyncResult(told.id).state == "SUCCESS"


@pytest.mark.timeout(180)
def test_results_are_stored_though_the_backend_fails_for_a_second(far: Fleet, backend: Proxy) -> None:
    far.worker(TEST_BACKEND=backend.url(2))
    told = far.coordinator.submit_many((f"k{number}", far.shop.add.s(1, number)) for number in range(BURST))
    backend.cut()
    time.sleep(1.0)
    backend.heal()
    found = results_of(far, told).join_native(timeout=90)
    assert found == [number + 1 for number in range(BURST)]


def test_a_backend_that_hangs_holds_up_no_job(far: Fleet, backend: Proxy) -> None:
    far.worker(TEST_BACKEND=backend.url(2))
    backend.hold()
    began = time.monotonic()
    told = far.coordinator.submit_many((f"k{number}", far.shop.add.s(1, number)) for number in range(100))
    for one in told:
        assert far.coordinator.wait(one.id, 20).state == "succeeded"
    assert time.monotonic() - began < 10
    backend.heal()
    assert results_of(far, told).join_native(timeout=60) == [number + 1 for number in range(100)]


@pytest.mark.timeout(120)
def test_a_node_killed_between_an_outcome_and_its_result_leaves_that_to_another(far: Fleet, backend: Proxy) -> None:
    first = far.worker("one", TEST_BACKEND=backend.url(2))
    backend.hold()
    told = far.coordinator.submit_many((f"k{number}", far.shop.add.s(1, number)) for number in range(20))
    for one in told:
        far.coordinator.wait(one.id, 20)
    assert all(AsyncResult(one.id, app=far.shop.app).state == "PENDING" for one in told)
    kill_all(first)
    backend.heal()
    far.worker("two")
    assert results_of(far, told).join_native(timeout=40) == [number + 1 for number in range(20)]


def test_failures_and_links_are_told_beside_plain_results(fleet: Fleet) -> None:
    fleet.worker()
    shop, coordinator = fleet.shop, fleet.coordinator
    good = coordinator.submit("a", shop.add.s(1, 2))
    bad = coordinator.submit("b", shop.fail.s("no"), max_attempts=1)
    linked = coordinator.submit("c", shop.add.s(3, 4).set(link=shop.work.s()))
    assert AsyncResult(good.id, app=shop.app).get(timeout=20) == 3
    with pytest.raises(ValueError, match="no"):
        AsyncResult(bad.id, app=shop.app).get(timeout=20)
    assert AsyncResult(bad.id, app=shop.app).traceback
    assert AsyncResult(linked.id, app=shop.app).get(timeout=20) == 7
    wait_until(lambda: fleet.stamps("7", "end"), 20)
