"""What a node says when it starts, and what its clock hears."""

import io
import logging

import pytest

from coordinator.diagnosis.server import log_server
from coordinator.fleet import processes
from coordinator.local.redis import free_port
from coordinator.settings import Settings
from coordinator.store.client import Store
from coordinator.warden.companion import LineReader
from tests.harness.redis import RedisServer


def test_a_redis_that_does_not_tell_or_does_not_answer_keeps_no_clock_from_starting(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with own_redis.client() as client:
        client.acl_setuser("mute", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-info"])
    for place in (f"mute:pw@127.0.0.1:{own_redis.port}", f"127.0.0.1:{free_port()}"):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            log_server(Store(Settings(url=f"redis://{place}/0", timeout=1)), logging.getLogger("clock"))
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "cannot ask Redis how it keeps its data" in caplog.text
        assert "pw" not in caplog.text


def test_a_line_that_cannot_be_read_is_not_taken_for_the_end_of_the_worker() -> None:
    heard: list[object] = []
    source = io.StringIO('{"load": 1}\n{"cancel": "xxxx\nnull\n[1]\n' + "[" * 100_000 + '\n{"load": 2}\n')
    reader = LineReader(source, processes.identity(), heard.append)
    reader.start()
    reader.join()
    assert heard == [{"load": 1}, {"load": 2}]
