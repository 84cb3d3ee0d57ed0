"""Rates over restarts of Redis, and units that a lost write forgets."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator import Coordinator, StoreUnavailable
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def restart(server: RedisServer, coordinator: Coordinator) -> None:
    server.kill()
    server.start()
    wait_until(server.answers)
    for _ in range(5):
        with suppress(StoreUnavailable):  # the old connections are gone
            coordinator.counts()
            coordinator.pause("other", why="to write")


def test_the_bucket_of_a_rate_is_empty_after_a_restart_of_redis(own: RedisServer) -> None:
    with Coordinator(url=own.url(0), prefix="p") as coordinator:
        coordinator.quota("q", rate="10/m", burst=10)
        node = Puppet(coordinator.store)
        node.up(capacity=100)
        for n in range(5):
            node.submit([], job_id=f"before/{n}", uses="q")
        assert node.take() is None, "this server has just begun"
        client, key = coordinator.store._client, coordinator.store.key
        client.hset(key("quota", "q"), mapping={"tat": 0, "begun": client.get(key("began"))})  # as after a long time
        coordinator.quota("q", rate="10/m", burst=11)
        assert [node.must_take().id for _ in range(5)] == [f"before/{n}" for n in range(5)]
        restart(own, coordinator)
        for n in range(5):
            node.submit([], job_id=f"after/{n}", uses="q")
        assert node.take() is None, "Redis may have lost starts of the time just before"
        assert 5 < coordinator._quotas.read("q").next_start <= 6
        assert coordinator._quotas.read("q").used == 5


def test_a_quota_without_a_rate_goes_on_at_once_after_a_restart(own: RedisServer) -> None:
    with Coordinator(url=own.url(0), prefix="p") as coordinator:
        coordinator.quota("q", concurrency=2)
        node = Puppet(coordinator.store)
        node.up(capacity=100)
        for n in range(4):
            node.submit([], job_id=str(n), uses="q")
        first = [node.must_take() for _ in range(2)]
        restart(own, coordinator)
        assert node.take() is None
        node.finish(first[0])
        assert node.must_take().id == "2"
