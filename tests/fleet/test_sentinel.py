"""A fleet whose coordinator, broker and results are behind Redis Sentinel, while masters fail under load."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.ops.diagnosis.status import status_of
from tests.harness.failover import Load, behind
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(tmp_path / "sentinels") as found:
        yield found


@pytest.fixture
def fleet(redis_server: RedisServer, sentinels: Sentinels, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(redis_server, prefix, tmp_path, timeout=1) as fleet:
        behind(fleet, sentinels)
        yield fleet


def test_jobs_go_on_in_order_when_a_master_is_killed_and_the_next_one_pauses(
    fleet: Fleet, sentinels: Sentinels
) -> None:
    fleet.worker("one", 2)
    with Load(fleet, keys=4, pause=0.1) as load:
        load.goes_on()
        first = sentinels.master()
        first.kill()
        failed = time.monotonic()
        second = sentinels.after(first)
        elected = time.monotonic()  # sentinels whose votes split on a busy machine vote again eight seconds later
        load.goes_on()
        recovered = time.monotonic()
        sentinels.settle(first)

        paused = time.time()
        second.pause()
        sentinels.after(second)
        second.resume()  # it still takes itself for the master
        sentinels.settle(first)
        settled = time.monotonic()
        load.goes_on()
        last = max(load.acknowledged, key=load.acknowledged.__getitem__)
    found = load.account()
    status = status_of(fleet.coordinator.store)

    # Replication is asynchronous: what was acknowledged just before a failure may be lost with it, nothing else.
    lost = [load.acknowledged[one] for one in found.lost]
    assert not [at for at in lost if at < failed - 1 or at > settled], found
    # The second one gives fences until it is made a replica. The third has greater ones: stores refuse the lesser.
    assert not [at for at in found.overtaken if at < paused], found
    assert recovered - elected < 60
    assert (status.master, status.replicas) == (f"127.0.0.1:{sentinels.master().port}", 1)
    assert "redis.failover" in {finding.code for finding in fleet.coordinator.doctor()}
    assert fleet.shop.work.AsyncResult(last).get(timeout=60) == last
