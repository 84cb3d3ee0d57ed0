"""Tests that leave a node as it was: those of a file share one, and run in one process, one after the other."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete

from coordinator.cli.main import cli
from coordinator.cli.session import Session
from tasks.batches import Items
from tasks.batches.schema import metadata
from tests.harness.command import Call
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.standing import Standing


@pytest.fixture(scope="module")
def standing(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """The file's `NODE`."""
    started = Standing(redis_server, tmp_path_factory.mktemp("standing"), request.module.NODE)
    yield started
    started.end()


@pytest.fixture
def fleet(standing: Standing, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The one node that the tests of the file share: lent to this test, which leaves it as it was."""
    with standing.lent(request.node) as fleet:
        yield fleet


@pytest.fixture
def press(fleet: Fleet) -> Iterator[Any]:
    """The module of the app, and an empty store. At the end no lane has a limit, so that the next test has the node."""
    press = fleet.app("press")
    with press.components.items.engine.begin() as connection:
        for table in metadata.tables.values():
            connection.execute(delete(table))
    yield press
    for lane in press.coordinator.lanes():
        press.coordinator.set_limit(lane.key, 1)
    press.coordinator.store.client.delete(press.coordinator.store.key("declared"))


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
