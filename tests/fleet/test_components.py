"""Components on several nodes: each item once, also where a node dies, or the database is away."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from coordinator.ops.cli.main import cli
from coordinator.ops.cli.session import Session
from tasks.batches import Items
from tasks.components import look, poll
from tasks.settings import Settings
from tests.fleet.shared.components import POLL, deliver
from tests.harness.fleet import ALONE, Fleet, kill_all
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_for_count, wait_until

QUICK = {"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.3, "node_ttl": 4}


def polled(press: Any) -> str:
    return str(poll.submit_run(press.components, press.components["Checker"]).id)


def checked(items: Items, names: list[str]) -> list[list[str]]:
    """The failures of each event; [] is a success."""
    found = ([one for one in items.events(name) if one.type == "Checked"] for name in names)
    return [
        [f"{failure.type}: {failure.description}" for failure in one.report.failures]
        for events in found
        for one in events
    ]


@pytest.fixture
def two(redis_server: RedisServer, prefix: str, tmp_path: Path, database: str) -> Iterator[Fleet]:
    """Nodes whose store is in PostgreSQL."""
    with Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        fleet.environ |= {"TASKS_DATABASE_URL": database}
        for name in ("one", "two"):
            fleet.worker(name, 2, *ALONE, app="press")
        yield fleet


def test_twenty_instances_on_two_nodes_take_each_of_fifty_items_once(
    redis_server: RedisServer, prefix: str, tmp_path: Path, database: str
) -> None:
    with Fleet(redis_server, prefix, tmp_path, **QUICK) as fleet:
        fleet.environ |= {"TASKS_DATABASE_URL": database}
        for name in ("one", "two"):
            fleet.worker(name, 12, *ALONE, app="press", pool="threads")
        press = fleet.app("press")
        names = [f"B{number:02}-RT1" for number in range(50)]
        deliver(press.components.items, *names, does="wait")
        once = press.components.signature(POLL, "Swarm")
        # Each on a lane of its own, as if a timer of each machine started it: they poll at the same time.
        runs = press.coordinator.submit_many((f"instance/{number}", once) for number in range(20))
        fleet.begun(*names[:20])
        at_work = look.working(press.components, press.components["Swarm"])
        assert sorted(one.item for one in at_work) == names[:20], "no more and no fewer, and in their order"
        for name in names:
            fleet.go(name)
        results = [press.coordinator.wait(one.id, 60).result for one in runs]
        told = [one for result in results if isinstance(result, list) for one in result]
        assert sorted(one["item"] for one in told if one["outcome"] == "succeeded") == names
        assert {one["outcome"] for one in told} <= {"succeeded", "not wanted"}, "a late look at the store"
        assert sorted(stamp.name for stamp in fleet.stamps(what="begin")) == names
        found = [one.type for name in names for one in press.components.items.events(name)]
        assert Counter(found) == {"Data_Received": 50, "Swarmed": 50}
        press.components.items.engine.dispose()


def test_each_item_is_worked_on_once_and_those_of_a_node_that_dies_go_on_elsewhere(two: Fleet) -> None:
    press = two.app("press")
    items = press.components.items
    quick, slow = [f"B{number}-RT1" for number in range(47)], ["C1-RT1", "C2-RT1", "C3-RT1"]
    deliver(items, *slow, does="wait")
    deliver(items, *quick)
    runs = [polled(press) for _ in range(3)]
    two.begun(*slow)
    dead = look.working(press.components, press.components["Checker"])[0]
    kill_all(next(worker for worker in two.workers if worker.name == dead.node))
    for name in slow:
        two.go(name)
    wait_until(lambda: Counter(stamp.name for stamp in two.stamps(what="begin"))[dead.item] == 2)
    for name in slow:  # a process that died may have been sent what it waited for
        two.go(name)
    for run in runs:
        press.coordinator.wait(run, 60)
    wait_for_count(lambda: len(checked(items, [*quick, *slow])), 50)
    assert checked(items, [*quick, *slow]) == [[]] * 50, "one event of each item"
    begun = Counter(stamp.name for stamp in two.stamps(what="begin"))
    twice = {name for name, count in begun.items() if count > 1}
    assert len(begun) == 50
    assert dead.item in twice <= set(slow), "only what died was begun again"
    wait_until(lambda: not press.coordinator.lanes("Checker/"))
    items.engine.dispose()


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
        wait_until(lambda: items.orphans("B1-RT1"), what=fleet.logs)
        (orphan,) = items.orphans("B1-RT1")
        assert (orphan["component"], orphan["success"]) == ("Checker", True)
        assert [one.type for one in items.events("B1-RT1")] == ["Data_Received"]
        wait_until(lambda: not press.coordinator.lanes("Checker/"))
        monkeypatch.setattr(Session, "app", press.app)
        said = CliRunner().invoke(cli, ["items", "orphans"]).output
        assert said.startswith("B1-RT1: Checked succeeded at ")
        assert said.endswith(" by Checker-1.0, orphaned: it had lost the item\n")
        assert said.removeprefix("B1-RT1: ") in CliRunner().invoke(cli, ["items", "show", "B1-RT1"]).output
