"""Components on several nodes: each item once, also where a node dies, or the database is away."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tasks.batches import Items, NewEvent
from tasks.components import look
from tasks.settings import Settings
from tests.harness.fleet import ALONE, Fleet, kill_all
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

QUICK = {"lock_ttl": 2, "sweep": 0.1, "heartbeat": 0.3, "node_ttl": 2}
POLL = "tasks.components.poll"


def deliver(items: Items, *names: str, does: str = "") -> None:
    now = datetime.now(UTC)
    for name in names:
        items.register(name, directory=does)
        items.begin("delivery", name, fence=1)
        items.append(NewEvent(name, "Data_Received", True, "delivery", "1", "1", 1, 1, now, now))


def polled(press: Any) -> str:
    made = press.coordinator.submit("component/Checker", press.components.signature(POLL, "Checker"))
    return str(made.job_id)


def checked(items: Items, names: list[str]) -> list[list[str]]:
    """The failures of each event; [] is a success."""
    found = ([one for one in items.events(name) if one.type == "Checked"] for name in names)
    return [
        [f"{failure.type}: {failure.description}" for failure in one.report.failures]
        for events in found
        for one in events
    ]


@pytest.fixture
def three(redis_server: RedisServer, prefix: str, tmp_path: Path, database: str) -> Iterator[Fleet]:
    """Nodes whose store is in PostgreSQL."""
    with Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        fleet.environ |= {"TASKS_DATABASE_URL": database, "TEST_LIMIT": "60"}
        for name in ("one", "two", "three"):
            fleet.worker(name, 2, *ALONE, app="press")
        yield fleet


def test_each_item_is_worked_on_once_and_those_of_a_node_that_dies_go_on_elsewhere(three: Fleet) -> None:
    press = three.app("press")
    items = press.components.items
    quick, slow = [f"B{number}-RT1" for number in range(47)], ["C1-RT1", "C2-RT1", "C3-RT1"]
    deliver(items, *slow, does="wait")
    deliver(items, *quick)
    runs = [polled(press) for _ in range(3)]
    three.begun(*slow)
    dead = look.working(press.components, press.components["Checker"])[0]
    kill_all(next(worker for worker in three.workers if worker.name == dead.node))
    for name in slow:
        three.go(name)
    wait_until(lambda: Counter(stamp.name for stamp in three.stamps(what="begin"))[dead.item] == 2, 30)
    for name in slow:  # a process that died may have been sent what it waited for
        three.go(name)
    for run in runs:
        press.coordinator.wait(run, 60)
    wait_until(lambda: len(checked(items, [*quick, *slow])) == 50)
    assert checked(items, [*quick, *slow]) == [[]] * 50, "one event of each item"
    begun = Counter(stamp.name for stamp in three.stamps(what="begin"))
    twice = {name for name, count in begun.items() if count > 1}
    assert len(begun) == 50
    assert dead.item in twice <= set(slow), "only what died was begun again"
    wait_until(lambda: not press.coordinator.lanes("Checker/"), 10)
    items.engine.dispose()


def test_a_result_waits_while_the_database_is_away(redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    with PostgresServer() as server, server.database() as name, Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        fleet.environ |= {"TASKS_DATABASE_URL": server.url(name), "TEST_LIMIT": "60"}
        fleet.worker("one", 2, *ALONE, app="press")
        press = fleet.app("press")
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


def test_a_result_whose_lease_was_lost_is_kept_as_an_orphan(
    redis_server: RedisServer, prefix: str, tmp_path: Path
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


def test_a_node_does_not_start_on_a_store_that_is_newer_than_it(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    with Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        items = Items(Settings(data_dir=Path(fleet.environ["TASKS_DATA_DIR"])))
        with items.engine.begin() as connection:
            connection.execute(text("UPDATE batches_version SET version_num = '9999'"))
        refused = fleet.worker("one", 1, *ALONE, app="press", ready=False)
        assert refused.process.wait(60) == 1
        (said,) = [line for line in fleet.logs().splitlines() if "newer than this program" in line]
        assert said.startswith("this node cannot work on components: the database sqlite:")
        assert "tables of the batches have version 9999" in said
        assert fleet.worker("two", 1, *ALONE, app="depot").name in fleet.nodes(), "it has no components"
