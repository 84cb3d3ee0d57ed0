"""Redis or the database is away while a child begins, or has its result: nothing is lost, and people see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from tasks.batches import Items
from tests.fleet.shared.components import deliver, event
from tests.fleet.test_components import QUICK, polled
from tests.harness.fleet import ALONE, Fleet
from tests.harness.postgres import PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("press", 2, ALONE, QUICK)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """The file's own: it may be killed."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    """Between the coordinator and its Redis."""
    with Proxy(redis_server.port) as between:
        yield between


@pytest.fixture(scope="module")
def environ(server: PostgresServer, proxy: Proxy) -> Iterator[dict[str, str]]:
    with server.database() as name:
        yield {"TASKS_DATABASE_URL": server.url(name), "COORDINATOR_URL": proxy.url(0)}


@contextmanager
def takes_no_change(items: Items) -> Iterator[None]:
    """The PostgreSQL of these items. Its connections are made anew, each time."""
    name = items.engine.url.database
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
    with items.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
        try:
            connection.execute(text(others), {"name": name})
            yield
        finally:
            connection.execute(text(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'))
            connection.execute(text(others), {"name": name})


def test_a_result_waits_while_the_database_is_away(fleet: Fleet, press: Any, server: PostgresServer) -> None:
    deliver(press.components.items, "B1-RT1", does="wait")
    run = polled(press)
    fleet.begun("B1-RT1")
    server.kill()
    fleet.go("B1-RT1")
    wait_until(lambda: "trying again" in fleet.logs(), what=fleet.logs)
    server.start()
    (told,) = press.coordinator.wait(run, 60).result
    assert told["outcome"] == "succeeded"
    assert [one.type for one in press.components.items.events("B1-RT1")] == ["Data_Received", "Checked"]
    assert len(fleet.stamps("B1-RT1", "begin")) == 1, "nothing was done again"


def test_a_result_waits_while_the_database_takes_no_change(fleet: Fleet, press: Any) -> None:
    """As a PostgreSQL that follows another one, before it is promoted."""
    deliver(press.components.items, "B1-RT1", does="wait")
    run = polled(press)
    fleet.begun("B1-RT1")
    with takes_no_change(press.components.items):
        fleet.go("B1-RT1")
        wait_until(lambda: "trying again" in fleet.logs(), what=fleet.logs)
    (told,) = press.coordinator.wait(run, 60).result
    assert told["outcome"] == "succeeded"
    assert len(fleet.stamps("B1-RT1", "begin")) == 1, "nothing was done again"


def test_a_result_waits_while_redis_is_away_and_nothing_is_done_again(fleet: Fleet, press: Any, proxy: Proxy) -> None:
    items = press.components.items
    deliver(items, "B1-RT1", does="wait")
    run = polled(press)
    fleet.begun("B1-RT1")
    wait_until(lambda: press.coordinator.job(run).state == "parked")
    proxy.cut()
    fleet.go("B1-RT1")
    wait_until(lambda: "trying again: " in fleet.logs(), what=fleet.logs)
    assert [one.type for one in items.events("B1-RT1")] == ["Data_Received"], "nobody can say whose the item is"
    proxy.heal()
    (told,) = press.coordinator.wait(run, 60).result
    assert told["outcome"] == "succeeded"
    assert event(items, "B1-RT1").success
    assert len(fleet.stamps("B1-RT1", "begin")) == 1
    assert not items.orphans()


def test_a_run_that_loses_its_lock_waits_for_its_children_all_the_same(fleet: Fleet, press: Any) -> None:
    items, lane = press.components.items, partial(press.coordinator.lane, "SBOI/Checker")
    deliver(items, "B1-RT1", "B2-RT1")
    with items.engine.connect() as connection:
        connection.execute(text("LOCK TABLE items IN ACCESS EXCLUSIVE MODE"))  # so the run waits, with its lock
        run = polled(press)
        wait_until(lambda: lane().state == "running")
        press.coordinator.release("SBOI/Checker", why="it was paused")
        connection.rollback()
    told = press.coordinator.wait(run, 60).result
    assert [(one["item"], one["outcome"]) for one in told] == [("B1-RT1", "succeeded"), ("B2-RT1", "succeeded")]
    assert "goes on with its 2 children" in fleet.logs()
