"""Fixtures: one real Redis per test process, a prefix of its own per test, fleets of real workers.

Each test that used the coordinator's Redis ends with a look for keys that nobody owns any more.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.settings import Settings
from coordinator.store import Store
from tests.fleet import Fleet
from tests.leftovers import leftovers
from tests.replicas.members import Members
from tests.servers import RedisServer
from tests.waiting import wait_until

LONG = ("test_compose.py", "test_examples.py", "test_nodelist_checker.py", "test_up.py", "test_demo.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: else one process is still at them when the others have nothing left."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A redis-server for this test process; tests keep apart by prefix and never flush it."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A redis-server with AOF for this test alone: it may be killed and restarted."""
    with RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[str]:
    """The installation's name for this test; at the end nothing may be left in it that has no owner."""
    name = redis_server.fresh_prefix()
    yield name
    store = Store(Settings(url=redis_server.url(0), prefix=name))
    if not getattr(request.node, "failed", False):
        wait_until(lambda: not leftovers(store), 5.0, lambda: f"keys without an owner: {leftovers(store)}")
    store.close()


@pytest.fixture
def coordinator(redis_server: RedisServer, prefix: str) -> Iterator[Coordinator]:
    """A plain client."""
    client = Coordinator(url=redis_server.url(0), prefix=prefix, timeout=10)
    yield client
    client.store.close()


@pytest.fixture
def fleet(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers of `tests.apps.shop` and its app, on the shared Redis."""
    with Fleet(redis_server, prefix, tmp_path) as started:
        yield started


@pytest.fixture
def members(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Members]:
    """A replica set on the shared Redis."""
    with Members(redis_server.url(0), prefix, tmp_path / "copies") as started:
        yield started


@pytest.fixture
def apart(own_redis: RedisServer, tmp_path: Path) -> Iterator[Members]:
    """A replica set whose Redis may be killed, emptied and set back."""
    with Members(own_redis.url(0), "apart", tmp_path / "copies") as started:
        yield started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.failed = report.failed  # type: ignore[attr-defined]
    return report
