"""How fast Redis answers and how full it is; and whether the network or Redis is slow."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator import Coordinator, RedisStatus
from coordinator.core.finding import Finding
from coordinator.ops.diagnosis.status import status_of
from tests.harness.command import Call, loaded
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

FAR = 0.03


def of_redis(coordinator: Coordinator) -> dict[str, Finding]:
    return {one.code: one for one in coordinator.doctor() if one.code in ("redis.slow", "redis.busy")}


@pytest.mark.parametrize(
    ("answers", "used", "most", "line"),
    [
        (0.00042, 84_000_000, 700_000_000, "Redis answers in 0.4 ms, 12 % of maxmemory (700 MB)"),
        (0.104, 2_540_000, None, "Redis answers in 104 ms, 2.5 MB used, no maxmemory"),
        (0.0096, None, None, "Redis answers in 9.6 ms"),
    ],
)
def test_one_line_says_how_redis_answers(answers: float, used: int | None, most: int | None, line: str) -> None:
    assert str(RedisStatus("redis://h/0", "7.4", answers, used, most)) == line


def test_code_a_command_and_its_json_say_how_redis_answers(own_redis: RedisServer, call: Call) -> None:
    url = own_redis.url(0)
    with Coordinator(url=url) as coordinator:
        status = coordinator.redis_status()
        assert 0 < status.answers < 1
        assert (status.redis, status.maxmemory) == (url, None)
        assert (status.used_memory or 0) > 100_000
        with own_redis.client() as client:
            client.config_set("maxmemory", "1gb")
        assert coordinator.redis_status().maxmemory == 2**30
        report = status_of(coordinator.store)
        assert (report.answers > 0, report.maxmemory) == (True, 2**30)
    told = call("status", COORDINATOR_URL=url).stdout.splitlines()
    assert re.fullmatch(r" +answers in [\d.]+ ms, 0 % of maxmemory \(1074 MB\)", told[1])
    written = loaded(call("status", "--json", COORDINATOR_URL=url))
    assert (written["answers"] > 0, written["maxmemory"]) == (True, 2**30)


def test_a_redis_that_is_far_away_is_slow_by_the_network(own_redis: RedisServer) -> None:
    with Proxy(own_redis.port) as proxy, Coordinator(url=proxy.url()) as coordinator:
        assert of_redis(coordinator) == {}
        proxy.delay = FAR
        assert coordinator.redis_status().answers >= FAR
        found = of_redis(coordinator)
        assert found.keys() == {"redis.slow"}
        assert re.fullmatch(
            r"it answers in \d+ ms, and runs commands for \d+ % of the time: the network between here and it, or its "
            r"host, is slow",
            found["redis.slow"].message,
        )
        assert found["redis.slow"].fix.endswith("--latency  # from this host")


@pytest.fixture
def sleepy(tmp_path: Path) -> Iterator[RedisServer]:
    """One that tests may have work for a time."""
    with RedisServer(tmp_path / "sleepy", "--enable-debug-command", "yes") as server:
        yield server


@contextmanager
def others_work(server: RedisServer) -> Iterator[None]:
    """Another program has Redis work without a pause: it asks for more than Redis can do, and awaits no reply."""
    over = threading.Event()

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            while not over.wait(0.035):
                connection.sendall(b"DEBUG SLEEP 0.04\r\n")

    thread = threading.Thread(target=ask)
    thread.start()
    yield
    over.set()
    thread.join()


def test_a_redis_that_others_keep_at_work_is_busy_and_the_network_is_not_blamed(sleepy: RedisServer) -> None:
    with Coordinator(url=sleepy.url(0)) as coordinator:
        coordinator.counts()
        said = ": Redis is busy, and calls wait for each other"
        with others_work(sleepy):  # on a busy machine it may rest between two calls
            wait_until(lambda: (one := of_redis(coordinator).get("redis.slow")) and said in one.message, 60)


def test_long_commands_are_found_once_they_took_a_second_and_named(sleepy: RedisServer) -> None:
    with Coordinator(url=sleepy.url(0)) as coordinator, sleepy.client() as client:
        client.execute_command("DEBUG", "SLEEP", 0.2)
        assert "redis.busy" not in of_redis(coordinator)
        client.execute_command("DEBUG", "SLEEP", 1)
        busy = of_redis(coordinator)["redis.busy"]
        assert re.fullmatch(
            r"\d of its commands took 100 ms or longer within 10 min, for which all others wait; the longest, DEBUG, "
            r"took 1\.\d s",
            busy.message,
        )
        assert "SLOWLOG GET 10" in busy.fix


def test_a_user_without_slowlog_and_config_breaks_nothing(sleepy: RedisServer) -> None:
    with sleepy.client() as client:
        client.execute_command("DEBUG", "SLEEP", 1.2)
        client.execute_command("ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", "-slowlog", "-config")
    with Coordinator(url=f"redis://u:pw@127.0.0.1:{sleepy.port}/0") as coordinator:
        assert "redis.busy" not in of_redis(coordinator)
        assert coordinator.redis_status().used_memory
