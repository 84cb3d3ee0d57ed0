"""Components on one node: each child stores one event, and says what came of its item."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import String, delete, literal, update

from coordinator import Job
from coordinator.cli.main import cli
from coordinator.cli.session import Session
from tasks.batches import Event, Items, NewEvent
from tasks.batches.schema import items as rows
from tasks.batches.schema import metadata
from tasks.components import look
from tests.harness.command import Call
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

POLL = "tasks.components.poll"
NODE = Node("press", 4, settings={"lock_ttl": 2, "sweep": 0.1, "heartbeat": 0.5})


@pytest.fixture
def press(fleet: Fleet) -> Any:
    """The module of the app, and an empty store."""
    press = fleet.app("press")
    with press.components.items.engine.begin() as connection:
        for table in metadata.tables.values():
            connection.execute(delete(table))
    return press


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


def deliver(items: Items, *names: str, does: str = "", priority: int | None = None) -> None:
    """Items that a component may begin with; `does`: for the checker."""
    now = datetime.now(UTC)
    for name in names:
        items.register(name, directory=does, priority=priority)
        items.begin("delivery", name, fence=1)
        items.append(NewEvent(name, "Data_Received", True, "delivery", "1", "1", 1, 1, now, now))


def run(press: Any, name: str = "Checker") -> Job:
    """A run of the component, once it is over."""
    component = press.components[name]
    signature = press.components.signature(POLL, name)
    made = press.coordinator.submit(component.run_lane, signature, when_busy="skip")
    return press.coordinator.wait(made.job_id, 60)  # type: ignore[no-any-return]


def event(items: Items, item: str, kind: str = "Checked") -> Event:
    (found,) = (one for one in items.events(item) if one.type == kind)
    return found


def kinds(found: Event) -> list[str]:
    return [failure.type for failure in found.report.failures]


def test_each_item_has_one_event_and_the_run_lists_what_came_of_it(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", "B2-RT1")
    deliver(items, "B3-RT1", does="fail 5")
    deliver(items, "B4-RT1", does="raise")
    deliver(items, "B5-RT1", does="not-yet")
    job = run(press)
    assert job.state == "succeeded"
    assert {one["item"]: one["outcome"] for one in job.result} == {
        "B1-RT1": "succeeded", "B2-RT1": "succeeded", "B3-RT1": "failed", "B4-RT1": "failed", "B5-RT1": "not yet",
    }  # fmt: skip
    assert event(items, "B1-RT1").success
    holes = event(items, "B3-RT1")
    assert (holes.success, holes.agent, holes.report.found, holes.report.text) == (
        False,
        "Checker-1.0",
        5,
        "it has holes",
    )
    assert [failure.file for failure in holes.report.failures] == ["page-0", "page-1"], "at most max_results of them"
    assert kinds(event(items, "B4-RT1")) == ["exception"]
    assert [one.type for one in items.events("B5-RT1")] == ["Data_Received"]
    again = run(press)
    assert [one["item"] for one in again.result] == ["B5-RT1"], "it asks again, and a failed item is parked"


def test_never_more_run_than_may_and_never_fewer_while_items_wait(fleet: Fleet, press: Any, items: Items) -> None:
    names = [f"B{number}-RT1" for number in range(10)]
    deliver(items, *names[:8], does="sleep 0.3")
    deliver(items, names[8], does="sleep 0.3", priority=9)
    deliver(items, names[9], does="sleep 0.3", priority=1)
    assert run(press).state == "succeeded"
    stamps = [stamp for stamp in fleet.stamps() if stamp.name in names]
    at_once = list(accumulate(1 if stamp.what == "begin" else -1 for stamp in stamps))
    assert max(at_once) == 3
    starts = [stamp for stamp in stamps if stamp.what == "begin"]
    assert {stamp.name for stamp in starts[:3]} == {names[9], names[8], names[0]}, "by priority, then age"
    ends = sorted(stamp.at for stamp in stamps if stamp.what == "end")
    for end, start in zip(ends, starts[3:], strict=False):
        assert start.at - end < 2_000_000, "a place stood empty while items waited"


def test_an_item_that_somebody_holds_is_skipped_and_a_fast_one_waits_for_no_slow_one(
    fleet: Fleet, press: Any, items: Items
) -> None:
    deliver(items, "B1-RT1", does="wait")
    deliver(items, "B2-RT1", "B3-RT1")
    checker = press.components["Checker"]
    with press.coordinator.lock("Checker/B3-RT1"):
        made = press.coordinator.submit(checker.run_lane, press.components.signature(POLL, "Checker"))
        fleet.begun("B1-RT1", "B2-RT1")
        wait_until(lambda: len(items.events("B2-RT1")) == 2)
        lane = press.coordinator.lane
        wait_until(lambda: lane("Checker/B2-RT1").state == "empty")
        (working,) = [one for one in look.working(press.components, checker) if one.node]
        assert (working.item, working.node) == ("B1-RT1", "one@test")
        tick = press.coordinator.submit(checker.run_lane, press.components.signature(POLL, "Checker"), when_busy="skip")
        assert not tick.accepted, "ticks are skipped while children run"
        fleet.go("B1-RT1")
        found = press.coordinator.wait(made.job_id, 30)
    assert sorted(one["item"] for one in found.result) == ["B1-RT1", "B2-RT1"]
    assert [one["item"] for one in run(press).result] == ["B3-RT1"]


def test_a_run_that_is_begun_again_finds_its_children(fleet: Fleet, press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="wait")
    deliver(items, "B2-RT1")
    child = press.components.signature("tasks.components.work", "Checker", "B1-RT1")
    press.coordinator.submit(["Checker/B1-RT1", "Checker"], child, job_id="again/B1-RT1")
    fleet.begun("B1-RT1")
    press.coordinator.submit("component/Checker", press.components.signature(POLL, "Checker"), job_id="again")
    wait_until(lambda: press.coordinator.job("again").state == "parked")
    fleet.go("B1-RT1")
    found = press.coordinator.wait("again", 30).result
    assert [one["item"] for one in found] == ["B1-RT1", "B2-RT1"]


def test_a_component_that_tops_up_polls_again_while_its_children_run(fleet: Fleet, press: Any, items: Items) -> None:
    deliver(items, "B1-RT1")
    run(press)
    first = run(press, "Binder").result
    assert (first["outcome"], len(first["jobs"])) == ("started", 1)
    fleet.begun("B1-RT1")
    deliver(items, "B2-RT1", priority=1)
    run(press)
    second = run(press, "Binder").result
    assert [job.rpartition("/")[2] for job in second["jobs"]] == ["B2-RT1"], "B1 is worked on"
    assert press.coordinator.job(second["jobs"][0]).state == "waiting"
    for name in ("B1-RT1", "B2-RT1"):
        fleet.go(name)
    for job in (*first["jobs"], *second["jobs"]):
        press.coordinator.wait(job, 20)
    assert event(items, "B2-RT1", "Bound").success


def test_a_component_that_asks_for_what_is_old_does_not_set_itself_off(press: Any, items: Items) -> None:
    items.register("an edition", type="edition")
    deliver(items, "B1-RT1")
    assert [one["item"] for one in run(press, "Indexer").result] == ["an edition"]
    assert run(press, "Indexer").result["outcome"] == "nothing to do"
    items.touch("an edition")
    assert [one["item"] for one in run(press, "Indexer").result] == ["an edition"]


def test_acts_reach_what_waits_and_are_refused_under_somebodys_hands(
    fleet: Fleet, press: Any, items: Items, command: Call
) -> None:
    names = [f"B{number}-RT1" for number in range(1, 7)]
    deliver(items, *names[:3], does="wait")
    deliver(items, *names[3:])
    assert command("items", "add", names[0], "Bound", "--failed").exit_code == 0
    made = press.coordinator.submit("component/Checker", press.components.signature(POLL, "Checker"))
    fleet.begun(*names[:3])
    wait_until(lambda: press.coordinator.job(made.job_id).state == "parked")
    assert (
        command("items", "prioritise", names[5], "1").output
        == f"{names[5]} has priority 1; 1 waiting jobs were moved\n"
    )
    assert command("items", "stop", names[4]).output == f"{names[4]} is stopped; 1 waiting jobs were cancelled\n"
    for act in (["restart", names[0]], ["remove", names[0], "Data_Received"], ["add", names[0], "Checked"]):
        refused = command("items", *act)
        assert (refused.exit_code, "Checker works on it" in refused.output) == (1, True)
    assert command("items", "restart", names[0], "--dry-run").output.startswith("would remove Bound FAILED")
    assert command("items", "prioritise", names[0], "2").output.endswith("0 waiting jobs were moved\n")
    stopped = command("items", "stop", names[1]).output
    assert "0 waiting jobs were cancelled\nChecker works on it" in stopped
    working = json.loads(command("components", "Checker", "--working", "--json").output)
    assert sorted(one["item"] for one in working) == names[:3]
    for name in names[:3]:
        fleet.go(name)
    press.coordinator.wait(made.job_id, 30)
    begun = sorted(fleet.stamps(what="begin"), key=lambda stamp: stamp.fence)
    assert [stamp.name for stamp in begun[3:]] == [names[5], names[3]]
    assert [one.type for one in items.events(names[4])] == ["Data_Received", "Manually_stopped"]
    assert [one.type for one in items.events(names[1])] == ["Data_Received", "Manually_stopped", "Checked"]
    assert [one.type for one in items.events(names[0])] == ["Data_Received", "Bound", "Checked"]


def test_a_run_by_command_says_what_came_of_each_item(press: Any, items: Items, command: Call) -> None:
    assert command("components", "run", "Checker").output == "Checker: nothing to do\n"
    deliver(items, "B1-RT1")
    done = command("components", "run", "Checker")
    assert (done.exit_code, done.output) == (0, "Worked on B1-RT1 successfully\n")
    deliver(items, "B2-RT1", does="fail 1")
    deliver(items, "B3-RT1")
    done = command("components", "run", "Checker")
    assert (done.exit_code, done.output.splitlines()) == (
        1, ["Failed to process B2-RT1", "Worked on B3-RT1 successfully"],
    )  # fmt: skip
    with press.coordinator.lock("component/Checker"):
        assert command("components", "run", "Checker").exit_code == 3
    # In a thread of its own: one that holds the lock may not wait for a run.
    with press.coordinator.lock("SBOI/Checker"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(command, "components", "run", "Checker").result().exit_code == 3
    assert command("components", "run", "Nobody").exit_code == 2
    assert "Checked FAILED" in command("items", "--failed", "Checked").output
    assert "hole page-0: hole 0 (Checker)" in command("items", "show", "B2-RT1").output
    assert command("items", "restart", "B2-RT1", "--dry-run").output.startswith("would remove Checked FAILED of")
    assert command("items", "restart", "B2-RT1").exit_code == 0
    assert command("items", "show", "B7-RT1").exit_code == 1


def test_an_attempt_that_ends_without_a_word_ends_as_a_failed_event(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="kill")
    deliver(items, "B2-RT1", does="infrastructure")
    deliver(items, "B3-RT1", does="sleep 30")
    job = run(press)
    assert (job.state, job.error["type"]) == ("failed", "SubResultFailed")
    assert kinds(event(items, "B1-RT1")) == ["lost"]
    assert kinds(event(items, "B2-RT1")) == ["infrastructure"]
    assert kinds(event(items, "B3-RT1")) == ["timeout"]
    assert not press.coordinator.lanes("Checker/"), "no lock outlives its job"


def test_a_row_that_cannot_be_read_is_named_and_hides_no_other_from_a_component(
    fleet: Fleet, press: Any, items: Items, command: Call
) -> None:
    """One is broken before the run, and one while it waits in line."""
    names = [f"B{number}-RT1" for number in range(20)]
    deliver(items, *names[:3], does="wait")
    deliver(items, *names[3:])

    def poison(name: str) -> None:
        with items.engine.begin() as connection:
            connection.execute(update(rows).where(rows.c.item == name).values(modified=literal("yesterday", String)))

    poison(names[10])
    made = press.coordinator.submit("component/Checker", press.components.signature(POLL, "Checker"))
    fleet.begun(*names[:3])
    poison(names[12])
    for name in names[:3]:
        fleet.go(name)
    outcomes = {one["item"]: one["outcome"] for one in press.coordinator.wait(made.job_id, 60).result}
    good = [name for name in names if name not in (names[10], names[12])]
    assert outcomes == dict.fromkeys(good, "succeeded") | {names[12]: "not wanted"}
    assert all(event(items, name).success for name in good)
    assert all(f"the item '{name}' cannot be read" in fleet.logs() for name in (names[10], names[12]))
    said = command("items").output
    assert f"these rows cannot be read, and the log says why: '{names[10]}', '{names[12]}'" in said
    assert all(name in said for name in good)
