"""What a node says when it starts."""

import logging
from pathlib import Path

import pytest

from coordinator.companion import warn
from coordinator.settings import Settings
from coordinator.store import Store
from tests.fleet import Fleet
from tests.servers import RedisServer, free_port
from tests.waiting import wait_until


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
        wait_until(lambda: "may evict jobs and locks (volatile-lru)" in warned.log.read_text(), 10)
        assert warned.log.read_text().count("Redis keeps nothing on disk") == 1
        assert "Redis keeps nothing" not in kept.log.read_text()
        assert "may evict" not in kept.log.read_text()


def test_a_redis_that_does_not_tell_or_does_not_answer_keeps_no_warden_from_starting(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with own_redis.client() as client:
        client.acl_setuser("mute", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-info"])
    for place in (f"mute:pw@127.0.0.1:{own_redis.port}", f"127.0.0.1:{free_port()}"):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            warn(Store(Settings(url=f"redis://{place}/0", timeout=1)))
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "cannot ask Redis how it keeps its data" in caplog.text
        assert "pw" not in caplog.text
