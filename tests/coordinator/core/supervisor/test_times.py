"""How often a supervisor does what depends on time, and for how long it goes on, on a time of the test's own."""

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.fleet.companion import Companion, LineReader
from coordinator.core.store.client import Store
from coordinator.core.supervisor import __main__ as main
from coordinator.core.supervisor import supervisor as module
from coordinator.core.supervisor.supervisor import Supervisor
from coordinator.local.redis import free_port
from tests.coordinator.core.supervisor.test_supervisor import supervisor_of
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


def steps_of(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, time: Time | None = None
) -> list[tuple[Any, ...]]:
    """The steps that the supervisor asks for."""
    found: list[tuple[Any, ...]] = []
    step = supervisor.store.step

    def noted(*args: Any, **options: Any) -> Any:
        found.append(args)
        if time:
            time.now += time.cost
        return step(*args, **options)

    monkeypatch.setattr(supervisor.store, "step", noted)
    return found


@pytest.fixture
def asked(supervisor: Supervisor, time: Time, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    return steps_of(supervisor, monkeypatch, time)


@pytest.fixture
def supervisor(redis_server: RedisServer, prefix: str, time: Time) -> Iterator[Supervisor]:
    supervisor = supervisor_of(redis_server, prefix, sweep=0.5, lock_ttl=15, node_ttl=6, heartbeat=2)
    supervisor.step()
    yield supervisor
    time.cost = 0
    supervisor.leave()


@pytest.mark.parametrize(("ago", "swept"), [(10_000, []), (30_000, ["sweep"]), (60_000, ["sweep"])])
def test_a_supervisor_sweeps_where_nobody_did_so_for_the_time_between_two_sweeps(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, ago: int, swept: list[str]
) -> None:
    supervisor = supervisor_of(redis_server, prefix, sweep=30, lock_ttl=100, node_ttl=100)
    supervisor.step()
    asked = steps_of(supervisor, monkeypatch)
    supervisor.store._client.hset(supervisor.store.key("swept"), "last", supervisor.store.now() - ago)
    supervisor.step()
    assert [args[0] for args in asked if args[0] == "sweep"] == swept
    assert all(args[1] <= 30_000 for args in asked if args[0] == "sweep"), "Redis refuses one that comes sooner"
    supervisor.leave()


@pytest.mark.parametrize(("lock_ttl", "node_ttl", "most"), [(15, 60, 7_500), (60, 6, 6_000)])
def test_a_supervisor_that_stood_still_for_half_a_lease_after_its_look_may_not_sweep(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, lock_ttl: float, node_ttl: float, most: int
) -> None:
    supervisor = supervisor_of(redis_server, prefix, lock_ttl=lock_ttl, node_ttl=node_ttl)
    deadlines: list[int] = []
    monkeypatch.setattr(supervisor, "sweep", deadlines.append)
    supervisor.step()
    assert [deadline - supervisor._now for deadline in deadlines] == [most]
    supervisor.leave()


def test_a_sweep_and_a_flush_leave_half_of_the_time_to_renewals(
    supervisor: Supervisor, asked: list[tuple[Any, ...]], time: Time
) -> None:
    client = supervisor.store._client
    client.zadd(supervisor.store.key("due"), {f"nobody-{number}": 1 for number in range(1500)})
    client.zadd(supervisor.store.key("sorters"), {f"empty-{number}": 1 for number in range(15)})
    client.hset(supervisor.store.key("swept"), "last", 1)
    began, time.cost = time.now, 0.1
    supervisor.step()
    steps = [args[0] for args in asked]
    assert 1 < steps.count("sweep") <= 4
    assert 1 < steps.count("sorter_flush") <= 4
    assert time.now - began <= 1.0
    time.cost = 0
    while client.zcard(supervisor.store.key("due")) or client.zcard(supervisor.store.key("sorters")):
        client.hset(supervisor.store.key("swept"), "last", 1)
        supervisor.step()


def test_a_node_tells_of_its_load_at_each_heartbeat(
    supervisor: Supervisor, asked: list[tuple[Any, ...]], time: Time
) -> None:
    told, began = [], time.now
    for _ in range(60):
        asked.clear()
        time.now += 0.5
        supervisor.step()
        told += [time.now for args in asked if args[0] == "node_beat" and "load" in args]
    assert {later - one for one, later in pairwise([began, *told])} == {2.0}


def test_rows_of_dead_processes_are_freed_every_few_seconds(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, cleaned = supervisor.store.now(), list[int]()
    for now in range(began, began + 60_000, 500):
        monkeypatch.setattr(supervisor.status_file, "clean", lambda now=now: cleaned.append(now))
        supervisor.watch.step(now)
    assert max(later - one for one, later in pairwise([began, *cleaned])) <= 10_000


ECHO = "import sys; [print(line, end='', flush=True, file=open(sys.argv[1], 'a')) for line in sys.stdin]"


def test_a_supervisor_looks_at_each_sweep_until_its_worker_is_gone_and_wakes_maintenance_where_it_has_work(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor, waits, heard = supervisor_of(redis_server, prefix, sweep=0.5), list[float](), tmp_path / "heard"
    owed = supervisor.store.key("unsent", "shop")

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in heard.read_text().splitlines()] if heard.exists() else []

    def ended(_: LineReader, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            supervisor.store._client.zadd(owed, {"job": 1})
        if len(waits) == 5:
            wait_until(lambda: len(lines()) == 3)
        return len(waits) > 4

    monkeypatch.setattr(LineReader, "ended", ended)
    maintenance = Companion("maintenance", ["-c", ECHO, str(heard)], tmp_path / "maintenance", 600, 600)
    main.serve(supervisor, io.StringIO(json.dumps({})), maintenance)
    assert waits == [0.5] * 5
    first, *others = lines()
    assert (first["node"], others) == ("one", [{"look": 1}] * 2)
    Store(supervisor.settings)._client.delete(owed)


def test_a_supervisor_signs_off_for_as_long_as_a_lease_where_redis_is_away(
    redis_server: RedisServer, prefix: str, time: Time
) -> None:
    away = supervisor_of(redis_server, prefix, url=f"redis://127.0.0.1:{free_port()}/0", lock_ttl=15, sweep=0.5)
    began = time.now
    main.sign_off(away)
    assert 15 <= time.now - began <= 17
