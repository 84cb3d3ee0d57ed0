"""Fixtures: one real Redis per test process, a prefix of its own per test. None of them starts a process of ours.

Each test that used the coordinator's Redis ends with a look for keys that nobody owns any more.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import pytest_timeout
from click.testing import CliRunner, Result
from xdist.scheduler import LoadScopeScheduling

from coordinator import Coordinator, Sorter
from coordinator.core.locks.leases import holding
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.ops.cli.main import cli
from tests.harness.checkout import Checkout
from tests.harness.command import Call
from tests.harness.hand_node import Puppet
from tests.harness.installation import Installation
from tests.harness.leftovers import leftovers
from tests.harness.postgres import PostgresServer
from tests.harness.produced import Produced
from tests.harness.proxy import Proxy
from tests.harness.rabbitmq import RabbitServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

TESTS = Path(__file__).parent
os.environ.setdefault("PYTHONPATH", str(TESTS / "harness" / "lean"))  # of the processes that tests start
# Files of which one process runs all tests, since these share what is dear to start or to read: a node, a Chromium, all
# files of the code, a site.
TOGETHER = (
    "tests/fleet/shared/", "tests/fleet/tasks/test_asked.py", "tests/fleet/tasks/test_description.py",
    "tests/coordinator/ops/dashboard/test_browser.py", "tests/tasks/pages/", "tests/test_floors.py",
    "tests/coordinator/django/test_site.py",
)  # fmt: skip
ON_RABBITMQ = "rabbitmq"


class Scheduling(LoadScopeScheduling):
    """Test processes are given one test at a time, but whole files where their tests share something, and one of them
    all that wants a RabbitMQ.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def _scope(nodeid: str) -> str:
    if nodeid.startswith("tests/fleet/rabbitmq/") or ON_RABBITMQ in nodeid.partition("[")[2]:
        return ON_RABBITMQ
    return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Produced())
    config.pluginmanager.register(Checkout())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where many run at a time: those with processes and whole files first, since they take longest, and the many short
    ones fill the last minute evenly. The first come in an order that means nothing: so those which work and those which
    wait run side by side.
    """
    if not hasattr(config, "workerinput"):
        return

    def place(item: pytest.Item) -> tuple[bool, int]:
        long = item.nodeid.startswith(("tests/fleet/", *TOGETHER))
        return not long, crc32(_scope(item.nodeid).encode()) if long else 0

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The collector of garbage would look at four thousand tests again and again: while they are made, and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# The timeout bounds each of setup, call and teardown. One for all of them (timeout_func_only = false) may strike while
# pytest makes or sends the report between them, which ends the test process, and leaves a teardown after it unbounded.
pytest_runtest_setup = pytest_runtest_teardown = pytest_timeout.pytest_runtest_call


@pytest.fixture(autouse=True)
def _own_locks() -> Iterator[None]:
    """Grabs that a test leaves open are not held by the next one."""
    yield
    holding.set(())


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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for this test process; tests keep apart by database."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium for the tests of a file: while it lives, asyncio has a loop in this thread."""
    from tests.harness.browser import chromium  # most test processes need none

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def rabbitmq_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A RabbitMQ for this test process; it takes seconds to start. Tests keep apart by vhost."""
    with RabbitServer(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy's address of an empty PostgreSQL database for this test alone."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)


@pytest.fixture
def prefix(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[str]:
    """The installation's name for this test; at the end nothing may be left in it that has no owner.

    The rest is removed then: those who look at all keys of this Redis would pay for each test before them.
    """
    name = redis_server.fresh_prefix()
    yield name
    store = Store(Settings(url=redis_server.url(0), prefix=name))
    if not getattr(request.node, "failed", False):
        wait_until(lambda: not leftovers(store), what=lambda: f"keys without an owner: {leftovers(store)}")
    if kept := list(store._client.scan_iter(f"{store.prefix}*", 1000)):
        store._client.unlink(*kept)
    store.close()


@pytest.fixture
def coordinator(redis_server: RedisServer, prefix: str) -> Iterator[Coordinator]:
    """A plain client."""
    client = Coordinator(url=redis_server.url(0), prefix=prefix, timeout=10)
    yield client
    client.store.close()


@pytest.fixture
def apps(redis_server: RedisServer, prefix: str) -> Iterator[Installation]:
    """The apps in `tests.harness.apps`, on the shared Redis, without a node."""
    with Installation(redis_server, prefix) as installation:
        yield installation


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    """Stands between whoever connects to it and the shared Redis."""
    with Proxy(redis_server.port) as between:
        yield between


@pytest.fixture
def node(coordinator: Coordinator) -> Puppet:
    """A registered node, played by hand."""
    puppet = Puppet(coordinator.store)
    puppet.up()
    return puppet


@pytest.fixture
def store(coordinator: Coordinator) -> Store:
    return coordinator.store


@pytest.fixture
def orders(coordinator: Coordinator) -> Sorter:
    return coordinator.sorter("orders")


@pytest.fixture
def call(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Call]:
    """The command in a folder without an app, on the test's installation; `env`: further variables."""
    environ = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": prefix, "COORDINATOR_APP": None}

    def run(*args: str, **env: str | None) -> Result:
        return CliRunner().invoke(cli, args, env=environ | env, prog_name="coordinator")

    with chdir(tmp_path):  # not by monkeypatch: its `undo` would lead back to the project's folder, which has an app
        yield run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.failed = report.failed  # type: ignore[attr-defined]
    return report
