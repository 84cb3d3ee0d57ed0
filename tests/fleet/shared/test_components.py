"""Components on one node: each child stores one event, and says what came of its item."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import accumulate
from typing import Any

from click.testing import Result
from sqlalchemy import String, literal, update

from coordinator.core.store.times import moment
from tasks.batches import Items
from tasks.batches.schema import items as rows
from tasks.components import look, poll
from tests.fleet.shared.components import deliver, event, run
from tests.harness.command import Call
from tests.harness.fleet import Fleet
from tests.harness.job_watch import watched
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("press", 4, settings={"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5, "slice": 60})


def test_each_item_has_one_event_and_the_run_lists_what_came_of_it(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", "B2-RT1")
    deliver(items, "B3-RT1", does="fail 5")
    deliver(items, "B4-RT1", does="raise")
    deliver(items, "B5-RT1", does="not-yet")
    deliver(items, "B6-RT1", does="no-text")
    job = run(press)
    assert job.state == "succeeded"
    assert {one["item"]: one["outcome"] for one in job.result} == {
        "B1-RT1": "succeeded", "B2-RT1": "succeeded", "B3-RT1": "failed", "B4-RT1": "failed", "B5-RT1": "not yet",
        "B6-RT1": "failed",
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
    raised = event(items, "B4-RT1")
    (failure,) = raised.report.failures
    assert (failure.type, failure.description) == ("exception", "ValueError: it raised")
    assert 'in check\n    raise ValueError("it raised")\n' in failure.details
    assert (raised.report.node, raised.started < raised.ended) == ("one@test", True)
    (path,) = event(items, "B6-RT1").report.failures
    assert (path.type, path.description) == (
        "exception",
        "TypeError: the file of a failure is a text, not PosixPath('page-1.jp2')",
    )
    assert [one.type for one in items.events("B5-RT1")] == ["Data_Received"]
    again = run(press)
    assert [one["item"] for one in again.result] == ["B5-RT1"], "it asks again, and a failed item is parked"


def test_items_behind_many_that_are_not_yet_to_be_done_have_their_turn(press: Any, items: Items) -> None:
    deliver(items, *(f"N{number}-RT1" for number in range(101)), does="not-yet", priority=1)
    deliver(items, "late-RT1", priority=2)
    ends = [{one["item"]: one["outcome"] for one in run(press).result} for _ in range(2)]
    assert [len(end) for end in ends] == [100, 102]
    assert ends[1]["late-RT1"] == "succeeded"


def test_never_more_run_than_may_and_never_fewer_while_items_wait(fleet: Fleet, press: Any, items: Items) -> None:
    names = [f"B{number}-RT1" for number in range(10)]
    deliver(items, *names[:8], does="sleep 0.1")
    deliver(items, names[8], does="sleep 0.1", priority=9)
    deliver(items, names[9], does="sleep 0.1", priority=1)
    with watched(press.coordinator.store, [f"watched/{name}" for name in names]) as seen:
        made = poll.submit_run(press.components, press.components["Checker"], "watched")
        assert press.coordinator.wait(made.id, 60).state == "succeeded"
    stamps = [stamp for stamp in fleet.stamps() if stamp.name in names]
    assert max(accumulate(1 if stamp.what == "begin" else -1 for stamp in stamps)) == 3
    begun = [stamp.name for stamp in stamps if stamp.what == "begin"]
    assert set(begun[:3]) == {names[9], names[8], names[0]}, "by priority, then age"
    assert {one.running + one.ready for one in seen if one.waiting} == {3}, "as many are admitted as may"
    began = next(number for number, one in enumerate(seen) if one.running == 3)
    crowded = [one for one in seen[began:] if one.waiting]
    assert len(crowded) > 3
    assert {one.running for one in crowded} == {3}, "a place stood empty while items waited"


def test_an_item_that_somebody_holds_is_skipped_and_a_fast_one_waits_for_no_slow_one(
    fleet: Fleet, press: Any, items: Items
) -> None:
    deliver(items, "B1-RT1", does="wait")
    deliver(items, "B2-RT1", "B3-RT1")
    checker = press.components["Checker"]
    with press.coordinator.lock("Checker/B3-RT1"):
        made = poll.submit_run(press.components, checker)
        fleet.begun("B1-RT1", "B2-RT1")
        wait_until(lambda: len(items.events("B2-RT1")) == 2)
        lane = press.coordinator.lane
        wait_until(lambda: lane("Checker/B2-RT1").state == "empty")
        child = press.coordinator.job(f"{made.id}/B1-RT1")
        assert child.keys == ("Checker/B1-RT1",)
        (working,) = [one for one in look.working(press.components, checker) if one.node]
        assert (working.item, working.node) == ("B1-RT1", "one@test")
        deliver(items, "B4-RT1")
        assert [one["item"] for one in run(press).result] == ["B4-RT1"], "a second batch waits for no slow child"
        fleet.go("B1-RT1")
        found = press.coordinator.wait(made.id, 60)
    assert sorted(one["item"] for one in found.result) == ["B1-RT1", "B2-RT1"]
    assert [one["item"] for one in run(press).result] == ["B3-RT1"]


def test_a_run_that_is_begun_again_finds_its_children(fleet: Fleet, press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="wait")
    deliver(items, "B2-RT1")
    child = press.components.signature("tasks.components.work", "Checker", "B1-RT1")
    press.coordinator.submit("Checker/B1-RT1", child, job_id="again/B1-RT1")
    fleet.begun("B1-RT1")
    poll.submit_run(press.components, press.components["Checker"], "again")
    wait_until(lambda: press.coordinator.job("again").state == "parked")
    fleet.go("B1-RT1")
    found = press.coordinator.wait("again", 60).result
    assert [one["item"] for one in found] == ["B1-RT1", "B2-RT1"]


def test_a_hung_child_holds_its_place_alone_and_a_new_item_begins_by_its_priority(
    fleet: Fleet, press: Any, items: Items
) -> None:
    """With one place, and two in line."""

    def parked(item: str, priority: int | None = None) -> str:
        deliver(items, item, priority=priority)
        made = poll.submit_run(press.components, press.components["Binder"])
        wait_until(lambda: press.coordinator.job(made.id).state == "parked")
        return str(made.id)

    runs = [parked("B1-RT1")]
    fleet.begun("B1-RT1")
    with press.coordinator.lock("Binder/B0-RT1"):
        deliver(items, "B0-RT1", priority=1)
        runs.append(parked("B2-RT1"))
        deliver(items, "B3-RT1")
        assert run(press, "Binder").result["outcome"] == "nothing to do", "its line has as many as it may"
        runs.append(parked("B4-RT1", priority=2))
    assert press.coordinator.job(f"{runs[1]}/B2-RT1").state == "waiting"
    assert [press.coordinator.job(one).state for one in runs] == ["parked"] * 3
    names = ["B1-RT1", "B4-RT1", "B2-RT1"]
    for name in names:
        fleet.go(name)
    for name, job in zip(names, (runs[0], runs[2], runs[1]), strict=True):
        (told,) = press.coordinator.wait(job, 60).result
        assert (told["item"], told["outcome"]) == (name, "succeeded"), "as any run says it"
        assert event(items, name, "Bound").success
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == names


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
    def act(*args: str) -> Result:
        return command("items", *args, "--why", "a test")

    names = [f"B{number}-RT1" for number in range(1, 7)]
    deliver(items, *names[:3], does="wait")
    deliver(items, *names[3:])
    assert act("append", names[0], "Bound", "--failed").exit_code == 0
    assert act("append", names[0], "Boxed").exit_code == 0
    (line,) = (one for one in command("items").output.splitlines() if one.startswith(names[0]))
    assert "Bound FAILED, Boxed, " in line
    made = poll.submit_run(press.components, press.components["Checker"])
    fleet.begun(*names[:3])
    wait_until(lambda: press.coordinator.job(made.id).state == "parked")
    assert act("prioritise", names[5], "1").output == f"{names[5]} has priority 1; 1 waiting jobs were moved\n"
    assert act("stop", names[4]).output == f"{names[4]} is stopped; 1 waiting jobs were cancelled\n"
    for asked in (["restart", names[0]], ["remove", names[0], "Data_Received"], ["append", names[0], "Checked"]):
        refused = act(*asked)
        assert (refused.exit_code, "Checker works on it" in refused.output) == (1, True)
    assert act("restart", names[0], "--dry-run").output.startswith("would remove Bound FAILED")
    assert act("prioritise", names[0], "2").output.endswith("0 waiting jobs were moved\n")
    stopped = act("stop", names[1]).output
    assert "0 waiting jobs were cancelled\nChecker works on it" in stopped
    working = json.loads(command("components", "Checker", "--working", "--json").output)["working"]
    assert sorted(one["item"] for one in working) == names[:3]
    for name in names[:3]:
        fleet.go(name)
    press.coordinator.wait(made.id, 60)
    begun = sorted(fleet.stamps(what="begin"), key=lambda stamp: stamp.fence)
    assert [stamp.name for stamp in begun[3:]] == [names[5], names[3]]
    assert [one.type for one in items.events(names[4])] == ["Data_Received", "Manually_stopped"]
    assert [one.type for one in items.events(names[1])] == ["Data_Received", "Manually_stopped", "Checked"]
    assert [one.type for one in items.events(names[0])] == ["Data_Received", "Bound", "Boxed", "Checked"]


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
    # In a thread of its own: one that holds the lock may not wait for a run.
    with press.coordinator.lock("SBOI/Checker"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(command, "components", "run", "Checker").result().exit_code == 3
    assert command("components", "run", "Nobody").exit_code == 2
    last = json.loads(command("components", "Checker", "--json").output)["last_run"]
    at = moment(datetime.fromisoformat(last))
    assert {f"last_run                {at}", "past                    Data_Received"} <= {
        *command("components", "Checker").output.splitlines()
    }
    heads, checker = command("components").output.splitlines()[:2]
    assert checker[heads.index("LAST RUN") :].split()[:2] == at.split(), "a narrow table cuts no instant alone"
    said = command("components").output.splitlines()
    assert "Binder is idle: no beat knows its schedule: start one, or run it by hand" in said
    assert "Checked FAILED" in command("items", "--failed", "Checked").output
    shown = command("items", "show", "B2-RT1").output
    assert "hole page-0: hole 0 (Checker)" in shown
    assert f"  began at {moment(event(items, 'B2-RT1').started)} on one@test\n" in shown
    assert command("items", "restart", "B2-RT1", "--dry-run", "--why", "a test").output.startswith(
        "would remove Checked FAILED of"
    )
    assert command("items", "restart", "B2-RT1", "--why", "a test").exit_code == 0
    assert command("items", "show", "B7-RT1").exit_code == 2


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
    made = poll.submit_run(press.components, press.components["Checker"])
    fleet.begun(*names[:3])
    poison(names[12])
    for name in names[:3]:
        fleet.go(name)
    outcomes = {one["item"]: one["outcome"] for one in press.coordinator.wait(made.id, 60).result}
    good = [name for name in names if name not in (names[10], names[12])]
    assert outcomes == dict.fromkeys(good, "succeeded") | {names[12]: "not wanted"}
    assert all(event(items, name).success for name in good)
    assert all(f"the item '{name}' cannot be read" in fleet.logs() for name in (names[10], names[12]))
    said = command("items").output
    assert f"these rows cannot be read, and the log says why: '{names[10]}', '{names[12]}'" in said
    assert all(name in said for name in good)
