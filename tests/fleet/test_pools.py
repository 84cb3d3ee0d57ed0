"""The pools that a job may run in, and the warnings of a worker."""

from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


@pytest.mark.broker
@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_jobs_run_in_every_pool_and_one_that_cannot_be_stopped_keeps_its_lane(fleet: Fleet, pool: str) -> None:
    fleet.configure(lock_ttl=3, sweep=0.1)
    fleet.worker(pool=pool, concurrency=1 if pool == "solo" else 4)
    shop = fleet.shop
    jobs = fleet.coordinator.submit_many([("ledger", shop.work.s(f"{i:02}", 0.01)) for i in range(20)])
    fleet.coordinator.wait(jobs[-1].id, 60)
    assert [stamp.name for stamp in fleet.stamps(what="end")] == [f"{i:02}" for i in range(20)]
    who = fleet.coordinator.submit("a", shop.whoami.s()).id
    assert fleet.coordinator.wait(who, 60).result["job"] == who

    over = fleet.coordinator.submit("a", shop.work.s("over", 7), time_limit=2)
    cancelled = fleet.coordinator.submit("b", shop.work.s("cancelled", 7))
    behind = [fleet.coordinator.submit(key, shop.work.s(f"behind {key}")) for key in "ab"]
    wait_until(lambda: fleet.stamps("cancelled"))
    fleet.coordinator.cancel(cancelled.id)
    states = [fleet.coordinator.wait(one.id, 60) for one in (over, cancelled)]
    assert [(one.state, one.attempt, one.losses) for one in states] == [("failed", 1, 0), ("cancelled", 1, 0)]
    assert (states[0].error or {})["type"] == "TimedOut"
    for one in behind:
        fleet.coordinator.wait(one.id, 60)
    for key, name in (("a", "over"), ("b", "cancelled")):
        assert [end.at for end in fleet.stamps(name, "end")] < [start.at for start in fleet.stamps(f"behind {key}")]
        assert len(fleet.stamps(name, "begin")) == 1


def test_a_plain_worker_warns_once_where_redis_may_lose_work_and_only_there(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with Fleet(own_redis, own_redis.fresh_prefix(), tmp_path) as fleet:
        kept = fleet.worker("kept", 1)
        with own_redis.client() as client:
            client.config_set("appendonly", "no")
            client.config_set("maxmemory", "500mb")
            client.config_set("maxmemory-policy", "volatile-lru")
        warned = fleet.worker("warned", 1)
        wait_until(lambda: "may evict jobs and locks (volatile-lru)" in warned.log.read_text())
        assert "ERROR/supervisor] error [redis.eviction]" in warned.log.read_text()
        assert warned.log.read_text().count("Redis keeps nothing on disk") == 1
        assert "Redis keeps nothing" not in kept.log.read_text()
        assert "may evict" not in kept.log.read_text()
