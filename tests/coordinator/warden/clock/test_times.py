"""How often a clock does what depends on time, and for how long it goes on, on a time of the test's own."""

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator.local.redis import free_port
from coordinator.store.client import Store
from coordinator.warden.clock import __main__ as main
from coordinator.warden.clock import clock as module
from coordinator.warden.clock.clock import Clock
from coordinator.warden.companion import Companion, LineReader
from tests.coordinator.warden.clock.test_clock import clock_of
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


class Time:
    """In place of the module `time`; `cost`: the seconds that each request takes."""

    def __init__(self) -> None:
        self.now, self.cost = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    for one in (module, main):
        monkeypatch.setattr(one, "time", made)
    return made


def steps_of(clock: Clock, monkeypatch: pytest.MonkeyPatch, time: Time | None = None) -> list[tuple[Any, ...]]:
    """The steps that the clock asks for."""
    found: list[tuple[Any, ...]] = []
    step = clock.store.step

    def noted(*args: Any, **options: Any) -> Any:
        found.append(args)
        if time:
            time.now += time.cost
        return step(*args, **options)

    monkeypatch.setattr(clock.store, "step", noted)
    return found


@pytest.fixture
def asked(clock: Clock, time: Time, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    return steps_of(clock, monkeypatch, time)


@pytest.fixture
def clock(redis_server: RedisServer, prefix: str, time: Time) -> Iterator[Clock]:
    clock = clock_of(redis_server, prefix, sweep=0.5, lock_ttl=15, node_ttl=6, heartbeat=2)
    clock.step()
    yield clock
    time.cost = 0
    clock.leave()


@pytest.mark.parametrize(("ago", "swept"), [(10_000, []), (30_000, ["sweep"]), (60_000, ["sweep"])])
def test_a_clock_sweeps_where_nobody_did_so_for_the_time_between_two_sweeps(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, ago: int, swept: list[str]
) -> None:
    clock = clock_of(redis_server, prefix, sweep=30, lock_ttl=100, node_ttl=100)
    clock.step()
    asked = steps_of(clock, monkeypatch)
    clock.store._client.hset(clock.store.key("swept"), "last", clock.store.now() - ago)
    clock.step()
    assert [args[0] for args in asked if args[0] == "sweep"] == swept
    assert all(args[1] <= 30_000 for args in asked if args[0] == "sweep"), "Redis refuses one that comes sooner"
    clock.leave()


@pytest.mark.parametrize(("lock_ttl", "node_ttl", "most"), [(15, 60, 7_500), (60, 6, 6_000)])
def test_a_clock_that_stood_still_for_half_a_lease_after_its_look_may_not_sweep(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, lock_ttl: float, node_ttl: float, most: int
) -> None:
    clock = clock_of(redis_server, prefix, lock_ttl=lock_ttl, node_ttl=node_ttl)
    deadlines: list[int] = []
    monkeypatch.setattr(clock, "sweep", deadlines.append)
    clock.step()
    assert [deadline - clock._now for deadline in deadlines] == [most]
    clock.leave()


def test_a_sweep_and_a_flush_leave_half_of_the_time_to_renewals(
    clock: Clock, asked: list[tuple[Any, ...]], time: Time
) -> None:
    client = clock.store._client
    client.zadd(clock.store.key("due"), {f"nobody-{number}": 1 for number in range(1500)})
    client.zadd(clock.store.key("sorters"), {f"empty-{number}": 1 for number in range(15)})
    client.hset(clock.store.key("swept"), "last", 1)
    began, time.cost = time.now, 0.1
    clock.step()
    steps = [args[0] for args in asked]
    assert 1 < steps.count("sweep") <= 4
    assert 1 < steps.count("sorter_flush") <= 4
    assert time.now - began <= 1.0
    time.cost = 0
    while client.zcard(clock.store.key("due")) or client.zcard(clock.store.key("sorters")):
        client.hset(clock.store.key("swept"), "last", 1)
        clock.step()


def test_a_node_tells_of_its_load_at_each_heartbeat(clock: Clock, asked: list[tuple[Any, ...]], time: Time) -> None:
    told, began = [], time.now
    for _ in range(60):
        asked.clear()
        time.now += 0.5
        clock.step()
        told += [time.now for args in asked if args[0] == "node_beat" and "load" in args]
    assert {later - one for one, later in pairwise([began, *told])} == {2.0}


def test_places_on_the_board_that_nobody_has_are_freed_every_few_seconds(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, cleaned = clock.store.now(), list[int]()
    for now in range(began, began + 60_000, 500):
        monkeypatch.setattr(clock.board, "clean", lambda now=now: cleaned.append(now))
        clock.watch.step(now)
    assert max(later - one for one, later in pairwise([began, *cleaned])) <= 10_000


ECHO = "import sys; [print(line, end='', flush=True, file=open(sys.argv[1], 'a')) for line in sys.stdin]"


def test_a_clock_looks_at_each_sweep_until_its_worker_is_gone_and_wakes_the_errands_where_they_have_work(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, waits, heard = clock_of(redis_server, prefix, sweep=0.5), list[float](), tmp_path / "heard"
    owed = clock.store.key("unsent", "shop")

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in heard.read_text().splitlines()] if heard.exists() else []

    def ended(_: LineReader, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            clock.store._client.zadd(owed, {"job": 1})
        if len(waits) == 5:
            wait_until(lambda: len(lines()) == 3)
        return len(waits) > 4

    monkeypatch.setattr(LineReader, "ended", ended)
    errands = Companion("the errands", ["-c", ECHO, str(heard)], tmp_path / "errands", 600, 600)
    main.serve(clock, io.StringIO(json.dumps({})), errands)
    assert waits == [0.5] * 5
    first, *others = lines()
    assert (first["node"], others) == ("one", [{"look": 1}] * 2)
    Store(clock.settings)._client.delete(owed)


def test_a_clock_signs_off_for_as_long_as_a_lease_where_redis_is_away(
    redis_server: RedisServer, prefix: str, time: Time
) -> None:
    away = clock_of(redis_server, prefix, url=f"redis://127.0.0.1:{free_port()}/0", lock_ttl=15, sweep=0.5)
    began = time.now
    main.sign_off(away)
    assert 15 <= time.now - began <= 17
