"""Tests that leave a node as it was: those of a file share one, and run in one process, one after the other."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete

from coordinator.ops.cli.main import cli
from coordinator.ops.cli.session import Session
from tasks.batches import Items
from tasks.batches.schema import metadata
from tests.harness.command import Call
from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.standing import Standing


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The file's own, with AOF: it may be killed, filled and started again."""
    with RedisServer(tmp_path_factory.mktemp("own"), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture(scope="module")
def fleet_redis(redis_server: RedisServer) -> RedisServer:
    """Of the file's fleet; a file may have another."""
    return redis_server


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """What else the file's fleet has in its environment; a file may have some."""
    return {}


@pytest.fixture(scope="module")
def of_nodes() -> dict[str, str]:
    """What only the nodes have there."""
    return {}


@pytest.fixture(scope="module")
def standing(
    request: pytest.FixtureRequest, fleet_redis: RedisServer, environ: dict[str, str], of_nodes: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Standing]]:  # fmt: skip
    """The file's `NODE`, for each broker that its tests have."""
    started: dict[str, Standing] = {}

    def on(broker: str) -> Standing:
        if broker not in started:
            server = request.getfixturevalue("rabbitmq_server") if broker == "rabbitmq" else None
            vhost = Broker(server, server.vhost()) if server else None
            place = tmp_path_factory.mktemp("standing")
            started[broker] = Standing(fleet_redis, place, request.module.NODE, vhost, of_nodes, **environ)
        return started[broker]

    yield on
    for one in reversed(started.values()):  # each puts the environment back as it was before it
        one.end()


@pytest.fixture
def rabbitmq(request: pytest.FixtureRequest) -> str:
    """The name of the broker."""
    return str(getattr(request, "param", "redis"))


@pytest.fixture
def fleet(standing: Callable[[str], Standing], rabbitmq: str, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The one node that the tests of the file share: lent to this test, which leaves it as it was."""
    with standing(rabbitmq).lent(request.node) as fleet:
        yield fleet


@pytest.fixture
def press(fleet: Fleet) -> Iterator[Any]:
    """The module of the app, and an empty store. At the end no quota is declared, as the next test expects."""
    press = fleet.app("press")
    with press.components.items.engine.begin() as connection:
        for table in metadata.tables.values():
            connection.execute(delete(table))
    yield press
    for quota in press.coordinator._quotas.page("", 100, "")[0]:
        press.coordinator.drop_quota(quota.name)
    press.coordinator.store._client.delete(press.coordinator.store.key("declared"))


@pytest.fixture
def items(press: Any) -> Items:
    return press.components.items


@pytest.fixture
def command(fleet: Fleet, press: Any, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`coordinator …` of the app, in this process."""

    def run(*args: str, **env: str | None) -> Result:
        monkeypatch.setattr(Session, "app", press.app)
        return CliRunner().invoke(cli, args, env=env, prog_name="coordinator")

    return run
