"""A process may keep a connection to the database between two uses."""

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from tasks.batches import Items
from tasks.settings import Settings
from tests.harness.postgres import PostgresServer


def opened(items: Items) -> int:
    """The number of the connection that the next use has, among all that were opened."""
    with items.engine.connect() as connection:
        return id(connection.connection.driver_connection)


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = request.getfixturevalue("database") if request.param == "postgres" else ""
    return Settings(data_dir=tmp_path, database_url=url)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_keeps_a_connection_uses_it_again_and_a_fork_inherits_none(settings: Settings) -> None:
    items = Items(settings, keeps=True)
    items.register("B1-RT1")
    assert opened(items) == opened(items)
    assert items.engine.pool.checkedin() == 1
    child = os.fork()
    if not child:
        os._exit(items.engine.pool.checkedin())
    assert os.waitpid(child, 0)[1] == 0
    assert items.engine.pool.checkedin() == 0, "it was closed here, too, before the fork"
    assert items.item("B1-RT1").revision == 1
    items.engine.dispose()


def test_nobody_else_keeps_one(settings: Settings) -> None:
    items = Items(settings)
    items.register("B1-RT1")
    assert not hasattr(items.engine.pool, "checkedin")


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(tmp_path: Path) -> None:
    with PostgresServer() as server, server.database() as name:
        items = Items(Settings(data_dir=tmp_path, database_url=server.url(name)), keeps=True)
        items.register("B1-RT1")
        server.kill()
        server.start()
        assert items.item("B1-RT1").revision == 1
        with items.engine.connect() as connection:
            mine = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            assert connection.execute(mine).scalar() == 1
        items.engine.dispose()
