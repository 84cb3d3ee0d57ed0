"""How long jobs run on a node, as its processes note it, and what the routing makes of it."""

from pathlib import Path

import pytest

from coordinator.core.fleet.measures import ENDING, Measures, Reader
from coordinator.core.fleet.run_times import LEAST, RunTimes, united
from tests.harness.hand_node import Puppet

SLOW, USUAL = {"shop.work": (40, 5.0)}, {"shop.work": (40, 1.0)}


@pytest.fixture
def fleet(node: Puppet) -> list[Puppet]:
    """Three alike, of four slots each."""
    puppets = [node, *(Puppet(node.store, name) for name in ("two", "three"))]
    for puppet in puppets[1:]:
        puppet.up()
    return puppets


def bells(fleet: list[Puppet]) -> list[int]:
    return [len(puppet.rung()) for puppet in fleet]


def end(fleet: list[Puppet]) -> None:
    for puppet in fleet:
        puppet.order()


def pace_of(node: Puppet) -> float:
    return next(one.slowdown for one in node.nodes.all() if one.name == node.name)


def test_a_node_where_jobs_run_five_times_as_long_is_rung_once_the_others_are_nearly_full(fleet: list[Puppet]) -> None:
    for puppet, times in zip(fleet, (SLOW, USUAL, USUAL), strict=True):
        puppet.nodes.beat(puppet.name, "a", {}, times)
    fleet[0].nodes.beat("one", "a", {}, SLOW)
    assert [pace_of(puppet) for puppet in fleet] == [5, 1, 1]
    for number in range(8):
        fleet[0].submit(f"k{number}")
    assert bells(fleet) == [0, 4, 4]
    fleet[0].submit("one more")
    assert bells(fleet) == [1, 4, 4], "work is there, and room"
    end(fleet)


def test_a_node_that_is_fast_again_or_told_too_little_counts_as_the_others(fleet: list[Puppet]) -> None:
    for puppet, times in zip(fleet, (SLOW, USUAL, USUAL), strict=True):
        puppet.nodes.beat(puppet.name, "a", {}, times)
    fleet[0].nodes.beat("one", "a", {}, USUAL)
    assert pace_of(fleet[0]) == 1
    fleet[0].nodes.beat("one", "a", {}, SLOW)
    fleet[0].nodes.beat("one", "a", {"load": 0})
    assert pace_of(fleet[0]) == 5
    fleet[0].nodes.beat("one", "a", {}, {})
    assert pace_of(fleet[0]) == 1


def test_a_task_that_one_node_alone_runs_says_nothing_about_its_speed(fleet: list[Puppet]) -> None:
    fleet[0].nodes.beat("one", "a", {}, {"shop.work": (40, 5.0)})
    assert pace_of(fleet[0]) == 1


def test_a_node_that_leaves_counts_no_more_for_the_fleet(fleet: list[Puppet]) -> None:
    for puppet in fleet:
        puppet.nodes.beat(puppet.name, "a", {}, USUAL)
    fleet[1].nodes.leave("two", "a")
    fleet[2].nodes.leave("three", "a")
    fleet[2].up(incarnation="b")
    found = fleet[0].store.read("ZRANGE", fleet[0].store.key("times", "shop.work"), 0, -1)
    assert found == [b"one"]


def test_nodes_that_are_equal_in_all_are_rung_in_turns(fleet: list[Puppet]) -> None:
    rung = []
    for number in range(6):
        fleet[0].submit(f"k{number}")
        (chosen,) = (puppet for puppet in fleet if puppet.rung())
        rung.append(chosen.name)
        taken = chosen.must_take(bell=chosen.rung()[0])
        chosen.finish(taken)
    assert sorted(rung[:3]) == sorted(rung[3:]) == ["one", "three", "two"]


def test_old_runs_count_no_more_and_few_say_nothing() -> None:
    at = [0.0]
    times = RunTimes(lambda: at[0])
    for _ in range(LEAST):
        times.note("a", 5.0)
    times.note("b", 1.0)
    assert united([times.sums()]) == {"a": (LEAST, 5.0)}
    at[0] = 3600.0
    assert times.sums() == {}
    for seconds in (1.0, 2.0, 9.0):
        times.note("a", seconds)
    assert times.sums() == {"a": (3, 2.0)}
    assert united([times.sums()] * 7) == {"a": (21, 2.0)}


def test_the_processes_of_a_node_write_their_sums_where_its_supervisor_reads_them(tmp_path: Path) -> None:
    measures, reader = Measures(tmp_path), Reader(tmp_path)
    for _ in range(LEAST + 2):
        measures.times.note("a", 2.0)
        measures.add("run", "a", 2.0)
    measures.write()
    reader.batch()
    reader.sent()
    assert reader.times == {"a": (LEAST + 2, 2.0)}
    (tmp_path / f"1.1{ENDING}").write_text("{ half")
    reader.batch()
    assert reader.times == {"a": (LEAST + 2, 2.0)}
    gone = Reader(tmp_path / "gone")
    gone.batch()
    assert gone.times == {}
