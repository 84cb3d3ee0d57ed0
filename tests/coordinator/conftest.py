"""Fixtures of the core's tests."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coordinator import Coordinator, Sorter
from coordinator.cli import cli
from coordinator.store import Store
from tests.puppet import Puppet
from tests.servers import RedisServer

from .calls import Call


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
def call(redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in a folder without an app, on the test's installation; `env`: further variables."""
    monkeypatch.chdir(tmp_path)
    environ = {"COORDINATOR_URL": redis_server.url(0), "COORDINATOR_PREFIX": prefix, "COORDINATOR_APP": None}

    def run(*args: str, **env: str | None) -> Result:
        return CliRunner().invoke(cli, args, env=environ | env, prog_name="coordinator")

    return run
