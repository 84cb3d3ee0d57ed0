"""Redis or the database is away while a child begins, or has its result: nothing is lost, and people see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from coordinator.cli.main import cli
from coordinator.cli.session import Session
from tasks.batches import Items
from tests.fleet.shared.components import deliver, event, kinds
from tests.fleet.test_components import QUICK, polled
from tests.harness.fleet import ALONE, Fleet
from tests.harness.postgres import PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


@contextmanager
def a_press(server: RedisServer, prefix: str, folder: Path, **environ: str) -> Iterator[tuple[Fleet, Any]]:
    with Fleet(server, prefix, folder, **QUICK) as fleet:
        fleet.environ |= {"TEST_LIMIT": "60"} | environ
        fleet.worker("one", 2, *ALONE, app="press")
        yield fleet, fleet.app("press")


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


def test_a_result_waits_while_the_database_is_away(redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    with (
        PostgresServer() as server,
        server.database() as name,
        a_press(redis_server, prefix, tmp_path, TASKS_DATABASE_URL=server.url(name)) as (fleet, press),
    ):
        deliver(press.components.items, "B1-RT1", does="wait")
        run = polled(press)
        fleet.begun("B1-RT1")
        server.kill()
        fleet.go("B1-RT1")
        wait_until(lambda: "asking again" in fleet.logs(), 30, fleet.logs)
        server.start()
        (told,) = press.coordinator.wait(run, 60).result
        assert told["outcome"] == "succeeded"
        assert [one.type for one in press.components.items.events("B1-RT1")] == ["Data_Received", "Checked"]
        assert len(fleet.stamps("B1-RT1", "begin")) == 1, "nothing was done again"


def test_a_result_waits_while_the_database_takes_no_change(
    redis_server: RedisServer, prefix: str, tmp_path: Path, database: str
) -> None:
    """As a PostgreSQL that follows another one, before it is promoted."""
    with a_press(redis_server, prefix, tmp_path, TASKS_DATABASE_URL=database) as (fleet, press):
        deliver(press.components.items, "B1-RT1", does="wait")
        run = polled(press)
        fleet.begun("B1-RT1")
        with takes_no_change(press.components.items):
            fleet.go("B1-RT1")
            wait_until(lambda: "asking again" in fleet.logs(), 30, fleet.logs)
        (told,) = press.coordinator.wait(run, 60).result
        assert told["outcome"] == "succeeded"
        assert len(fleet.stamps("B1-RT1", "begin")) == 1, "nothing was done again"


def test_work_is_done_again_where_its_result_could_not_be_stored_in_time(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    with (
        PostgresServer() as server,
        server.database() as name,
        a_press(
            redis_server, prefix, tmp_path, TASKS_DATABASE_URL=server.url(name), TEST_PATIENCE="0.5", TEST_RETRY="4"
        ) as (fleet, press),
    ):
        deliver(press.components.items, "B1-RT1", does="wait")
        run = polled(press)
        fleet.begun("B1-RT1")
        server.kill()
        fleet.go("B1-RT1")
        wait_until(lambda: press.coordinator.job(f"{run}/B1-RT1").state == "retrying", 30, fleet.logs)
        server.start()
        fleet.go("B1-RT1")
        assert press.coordinator.wait(run, 60).state == "succeeded"
        assert [one.type for one in press.components.items.events("B1-RT1")] == ["Data_Received", "Checked"]
        assert len(fleet.stamps("B1-RT1", "begin")) == 2


def test_a_result_that_no_attempt_could_store_is_counted_shown_and_in_the_end_recorded(
    redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        PostgresServer() as server,
        server.database() as name,
        a_press(redis_server, prefix, tmp_path, TASKS_DATABASE_URL=server.url(name), TEST_PATIENCE="0.5") as given,
    ):
        fleet, press = given
        deliver(press.components.items, "B1-RT1", does="wait")
        run = polled(press)
        fleet.begun("B1-RT1")
        server.kill()
        fleet.go("B1-RT1")
        child = f"{run}/B1-RT1"
        wait_until(lambda: press.coordinator.job(child).state == "rolling_back", 30, fleet.logs)
        assert press.coordinator.counts()["retries"] == 1
        monkeypatch.setattr(Session, "app", press.app)
        shown = CliRunner().invoke(cli, ["job", child]).output
        assert "OperationalError" in shown
        server.start()
        assert press.coordinator.wait(run, 60).state == "failed"
        assert kinds(event(press.components.items, "B1-RT1")) == ["infrastructure"]
        wait_until(lambda: not press.coordinator.lanes("Checker/"), 10)


def test_a_result_waits_while_redis_is_away_and_nothing_is_done_again(
    redis_server: RedisServer, prefix: str, tmp_path: Path, proxy: Proxy
) -> None:
    with a_press(redis_server, prefix, tmp_path, COORDINATOR_URL=proxy.url(0)) as (fleet, press):
        items = press.components.items
        deliver(items, "B1-RT1", does="wait")
        run = polled(press)
        fleet.begun("B1-RT1")
        wait_until(lambda: press.coordinator.job(run).state == "parked")
        proxy.cut()
        fleet.go("B1-RT1")
        wait_until(lambda: "asking again: " in fleet.logs(), 30, fleet.logs)
        assert [one.type for one in items.events("B1-RT1")] == ["Data_Received"], "nobody can say whose the item is"
        proxy.heal()
        (told,) = press.coordinator.wait(run, 60).result
        assert told["outcome"] == "succeeded"
        assert event(items, "B1-RT1").success
        assert len(fleet.stamps("B1-RT1", "begin")) == 1
        assert not items.orphans()


def test_a_run_that_loses_its_lock_waits_for_its_children_all_the_same(
    redis_server: RedisServer, prefix: str, tmp_path: Path, database: str
) -> None:
    with a_press(redis_server, prefix, tmp_path, TASKS_DATABASE_URL=database) as (fleet, press):
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
        assert "it goes on with its 2 children" in fleet.logs()


def test_a_result_whose_lease_was_lost_is_kept_as_an_orphan(
    redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool of threads nobody can stop the body of a job that lost its lane."""
    with Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        fleet.worker("one", 4, *ALONE, app="press", pool="threads")
        press = fleet.app("press")
        items = press.components.items
        deliver(items, "B1-RT1", does="wait")
        polled(press)
        fleet.begun("B1-RT1")
        press.coordinator.release("Checker/B1-RT1", why="it takes too long")
        fleet.go("B1-RT1")
        wait_until(lambda: items.orphans("B1-RT1"), 20, fleet.logs)
        (orphan,) = items.orphans("B1-RT1")
        assert (orphan["component"], orphan["success"]) == ("Checker", True)
        assert [one.type for one in items.events("B1-RT1")] == ["Data_Received"]
        wait_until(lambda: not press.coordinator.lanes("Checker/"), 10)
        monkeypatch.setattr(Session, "app", press.app)
        said = CliRunner().invoke(cli, ["items", "orphans"]).output
        assert said.startswith("B1-RT1: Checked succeeded at ")
        assert said.endswith(" by Checker-1.0, orphaned: it had lost the item\n")
        assert said.removeprefix("B1-RT1: ") in CliRunner().invoke(cli, ["items", "show", "B1-RT1"]).output
