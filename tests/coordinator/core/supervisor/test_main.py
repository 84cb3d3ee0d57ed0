"""What the supervisor logs when it starts."""

import logging

import pytest

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.store.server import log_server
from coordinator.local.redis import free_port
from tests.harness.redis import RedisServer


def test_a_redis_that_does_not_tell_or_does_not_answer_keeps_no_supervisor_from_starting(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with own_redis.client() as client:
        client.acl_setuser("mute", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-info"])
    for place in (f"mute:pw@127.0.0.1:{own_redis.port}", f"127.0.0.1:{free_port()}"):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            log_server(Store(Settings(url=f"redis://{place}/0", timeout=1)), logging.getLogger("supervisor"))
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "cannot check the settings of the Redis server" in caplog.text
        assert "pw" not in caplog.text
