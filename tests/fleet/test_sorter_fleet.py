"""Sorters on real fleets: at their time, in order, none twice and none lost, whoever is killed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, Sorter, StoreUnavailable
from tests.coordinator.sorters.batches import names
from tests.harness.fleet import Fleet
from tests.harness.leftovers import leftovers
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_for_count, wait_until
from tests.harness.warm import start

WATCH = """
import sys
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
made = lambda path: {"task": "tests.harness.apps.shop.work", "args": [path.name], "kwargs": {}, "options": {}}
client.sorter("files", 60).watch(sys.argv[3], key="k", signature=made, poll=0.05, if_unknown="wait")
"""


@pytest.fixture
def own_fleet(own_redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(own_redis, "own", tmp_path, lock_ttl=2, node_ttl=1.5, sweep=0.2, timeout=0.5) as fleet:
        yield fleet
        direct = Coordinator(url=own_redis.url(0), prefix="own").store
        wait_until(lambda: not leftovers(direct), 10, lambda: str(leftovers(direct)))
        direct.close()


def add(fleet: Fleet, sorter: Sorter, *order_ids: str) -> None:
    for order_id in order_ids:
        sorter.add(order_id, "k", fleet.shop.work.s(order_id))


def begun(fleet: Fleet) -> list[str]:
    return [stamp.name for stamp in fleet.stamps(what="begin")]


def now(fleet: Fleet) -> float:
    with fleet.server.client() as client:
        seconds, micro = client.time()
    return float(seconds + micro / 1e6)


def ran(fleet: Fleet, count: int, timeout: float = 60) -> list[str]:
    wait_for_count(lambda: fleet.coordinator.counts()["succeeded"], count, timeout, fleet.logs)
    return begun(fleet)


def flushing(fleet: Fleet) -> bool:
    return any(held.flushing for held in fleet.coordinator.sorters())


def test_orders_start_sorted_the_idle_time_after_the_last_of_them(fleet: Fleet) -> None:
    """As of 10 s and an order 3 s later, five times as fast."""
    fleet.worker(concurrency=1)
    sorter = fleet.coordinator.sorter("orders", idle_timeout=2)
    add(fleet, sorter, "cba")
    last = time.monotonic() + 0.6
    wait_until(lambda: time.monotonic() >= last)
    add(fleet, sorter, "abc")
    added = now(fleet)
    assert ran(fleet, 2) == ["abc", "cba"]
    assert 2.0 <= fleet.stamps(what="begin")[0].at / 1e6 - added + 0.01 < 6


def test_a_trickle_is_let_go_max_wait_after_its_first(fleet: Fleet) -> None:
    fleet.worker(concurrency=1)
    sorter = fleet.coordinator.sorter("orders", idle_timeout=1.0, max_wait=2.0)
    first, given = now(fleet), [f"{number:02}" for number in range(12, 0, -1)]
    for order_id in given:
        add(fleet, sorter, order_id)
        after = time.monotonic() + 0.3
        wait_until(lambda after=after: time.monotonic() >= after)  # type: ignore[misc]
    added, found = now(fleet), ran(fleet, len(given))
    began = fleet.stamps(what="begin")[0].at / 1e6
    assert 2.0 <= began - first < 6
    assert began < added, "it did not wait for the last"
    assert sorted(found) == sorted(given)
    assert found[0] < given[0], "the first batch was sorted"


def test_wardens_killed_in_the_middle_of_a_flush_lose_and_double_nothing(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1)
    workers = [fleet.worker(name, 1) for name in ("one", "two")]
    fleet.coordinator.pause("k", why="to see all of the line")
    sorter = fleet.coordinator.sorter("orders", idle_timeout=1)
    given, late = [f"{number:04}" for number in range(6000)], []
    add(fleet, sorter, *reversed(given))
    for kill in range(2):
        wait_until(lambda: flushing(fleet) or not fleet.coordinator.sorters(), 20)
        for warden in [warden for worker in workers for warden in worker.wardens()]:
            warden.kill()
        if flushing(fleet):
            late.append(f"0000-late-{kill}")
            add(fleet, sorter, late[-1])
    assert late, "no warden was killed in the middle of a flush"
    wait_until(lambda: not fleet.coordinator.sorters(), 30, fleet.logs)
    assert names(fleet.coordinator.lane("k", 10000).jobs) == [*given, *late], "who came late belongs to the next batch"
    assert fleet.coordinator.counts()["created"] == len(given) + len(late)


def test_what_is_collected_outlives_a_restart_of_redis(own_fleet: Fleet) -> None:
    own_fleet.worker(concurrency=1)
    sorter = own_fleet.coordinator.sorter("orders", idle_timeout=4, max_wait=6)
    add(own_fleet, sorter, "c", "a")
    before = own_fleet.coordinator.sorters()
    own_fleet.server.kill()
    own_fleet.server.start()
    assert own_fleet.coordinator.sorters() == before
    assert names(sorter.orders()) == ["a", "c"]
    try:
        add(own_fleet, sorter, "b")
    except StoreUnavailable:  # its connection was cut: it is safe to ask again
        add(own_fleet, sorter, "b")
    assert own_fleet.coordinator.why("orders/b").codes == ["later.sorter"]
    assert ran(own_fleet, 3) == ["a", "b", "c"]


def test_watchers_killed_while_files_arrive_leave_one_order_for_each(coordinator: Coordinator, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    argv = ["-c", WATCH, coordinator.settings.url, coordinator.settings.prefix, str(inbox)]

    sorter, given, watches = coordinator.sorter("files", 60), [f"{number:03}" for number in range(200)], [start(argv)]
    ended: list[Any] = []
    try:
        for turn in range(4):
            watches.append(start(argv))
            for name in given[turn * 50 : turn * 50 + 50]:
                (inbox / f".{name}").write_text(name)
                (inbox / f".{name}").rename(
                    inbox / name
                )  # whole: a writer that pauses between two looks has two orders
            wait_until(lambda turn=turn: len(sorter.orders(1000)) > turn * 50 + 10, 20)  # type: ignore[misc]
            ended.append(watches.pop(0))
            ended[-1].kill()
        wait_until(lambda: len(sorter.orders(1000)) >= len(given), 20)
    finally:
        for watch in [*ended, *watches]:
            watch.kill()
            watch.wait()
    assert names(sorter.orders(1000)) == given
    assert coordinator.counts()["created"] == len(given)
    for job_id in sorter.orders(1000):
        coordinator.cancel(job_id)
