"""Ready jobs of one class and group: priority counts, and who was started already stands in front."""

import itertools
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.jobs.record import TERMINAL
from tests.harness.hand_node import Puppet, sketch

LIVE = ("waiting", "scheduled", "collected", "ready", "running", "retrying", "parked", "held", "rolling_back")
WORTH = 2**20  # places that one point of priority is worth


def test_among_ready_jobs_of_a_group_the_greater_priority_goes_first(node: Puppet) -> None:
    for i in range(20):
        node.submit(f"low{i}", priority=-255, job_id=f"low{i:02}")
    node.submit("high", priority=255, job_id="high")
    node.submit("usual", job_id="usual")
    assert node.order() == ["high", "usual", *(f"low{i:02}" for i in range(20))]


def test_groups_take_turns_whatever_their_priorities(node: Puppet) -> None:
    for group, priority in (("a", 255), ("b", -255)):
        for i in range(3):
            node.submit(f"{group}/{i}", priority=priority, job_id=f"{group}{i}")
    assert node.order() == ["a0", "b0", "a1", "b1", "a2", "b2"]


@pytest.mark.parametrize("how", ["raised", "conflict", "timed_out", "lost"])
def test_a_job_that_was_started_keeps_its_place_before_greater_priorities(node: Puppet, how: str) -> None:
    """No sweep is needed where it is tried again without a delay."""
    node.submit("a", priority=-5, job_id="old", max_attempts=2)
    taken = node.must_take()
    node.submit("b", priority=255, job_id="new")
    if how in ("lost", "timed_out"):
        node.lose(taken, how)
    else:
        node.finish(taken, how)
    assert node.order() == ["old", "new"]


def test_jobs_that_were_started_follow_each_other_as_they_came_back(node: Puppet) -> None:
    for name in "zab":
        node.submit(name, job_id=name)
    taken = [node.must_take() for _ in range(3)]
    for one in taken:
        node.lose(one)
    assert node.order() == ["z", "a", "b"]


def test_a_job_that_its_turn_made_ready_counts_by_its_priority(node: Puppet) -> None:
    node.submit("a", job_id="front")
    node.submit("a", priority=9, job_id="behind")
    node.submit("b", priority=5, job_id="other")
    assert [node.must_take().id] == ["other"]
    taken = node.must_take()
    node.submit("c", priority=7, job_id="third")
    node.finish(taken)
    assert node.order() == ["behind", "third"]
    node.lanes.release("b", why="done")


def test_low_priorities_age_by_the_jobs_that_come_after_them(node: Puppet) -> None:
    client = node.store._client
    node.submit("a", job_id="low")
    client.incrby(node.store.key("sequence"), WORTH)  # so many became ready since
    node.submit("b", priority=1, job_id="late")
    node.submit("c", priority=2, job_id="later")
    assert node.order() == ["later", "low", "late"]


def test_a_job_that_nobody_can_take_hides_no_other(node: Puppet) -> None:
    for i in range(20):
        node.submit(f"x{i}", task="shop.unknown", priority=255, job_id=f"x{i}")
    node.submit("a", priority=-255, job_id="a")
    found = [node.take() for _ in range(3)]
    assert [one.id for one in found if one] == ["a"]
    for i in range(20):
        node.lanes.cancel(f"x{i}")


def test_jobs_of_another_task_in_each_group_hide_none_that_stands_behind_them(node: Puppet) -> None:
    for key in ("h/x", "g/x"):
        node.submit(key, task="shop.other", job_id=key)
    node.submit("g/y", job_id="fits")
    two = Puppet(node.store, "two")
    two.up(tasks=("shop.work",))
    taken = two.must_take()
    assert (taken.id, two.take()) == ("fits", None)
    two.finish(taken)
    assert sorted(node.order()) == ["g/x", "h/x"]


def test_a_job_over_several_keys_that_is_taken_with_the_end_of_another_is_put_in_no_list(node: Puppet) -> None:
    for name in ("one", "two"):
        node.submit(["a", "b", "c"], job_id=name)
    taken = node.must_take()
    before = node.store._client.get(node.store.key("sequence"))
    following = node.finish(taken, "succeeded", "its token").next
    assert following
    assert following.id == "two"
    assert node.store._client.get(node.store.key("sequence")) == before, "each place in a list has a number"
    node.finish(following)


def test_counts_of_many_groups_ask_no_group(node: Puppet) -> None:
    many = [sketch(f"g{i}/x", job_id=f"j{i}") for i in range(3000)]
    for start in range(0, len(many), 1000):
        node.lanes.submit_many(many[start : start + 1000])
    undone = [node.must_take() for _ in range(3)]
    assert commands(node, node.lanes.counts) < 20
    found = node.lanes.counts()
    assert (found["ready"], found["running"], found["waiting"]) == (2997, 3, 0)
    for one in undone:
        node.finish(one)
    for one in many:
        node.lanes.cancel(one.id)


def test_before_anything_was_counted_every_counter_is_nought(coordinator: Coordinator) -> None:
    counts = coordinator.counts()
    assert set(counts) == {"created", "retries", "losses", "faults", *LIVE, *TERMINAL}
    assert set(counts.values()) == {0}


def test_a_rollback_is_counted_once_ready_or_running(node: Puppet) -> None:
    for name in ("a", "b"):
        node.submit(name, job_id=name, rollback={"task": "shop.work"})
    for one in [node.must_take(), node.must_take()]:
        node.finish(one, "failed")
    taken = node.must_take()
    found = node.lanes.counts()
    assert [found[state] for state in ("rolling_back", "ready", "running", "waiting")] == [2, 0, 0, 0]
    node.finish(taken)
    node.order()


def commands(node: Puppet, ask: Any) -> int:
    """How many commands the server did meanwhile, those within functions too."""

    def done() -> int:
        stats: Any = node.store._client.info("commandstats")
        return sum(stats[name]["calls"] for name in stats)

    before = done()
    ask()
    return done() - before


def test_a_free_place_beside_many_that_wait_for_another_lane_asks_each_but_once(node: Puppet) -> None:
    node.lanes.set_limit("shared", 300)
    node.lanes.set_limit("shut", 0)
    node.submit("shared", job_id="first")
    for i in range(250):
        node.submit(["shared", "shut"], job_id=f"j{i:03}")
    taken = node.must_take()
    assert commands(node, lambda: node.finish(taken)) < 250 * 12
    for i in range(250):
        node.lanes.cancel(f"j{i:03}")
    for key in ("shared", "shut"):
        node.lanes.set_limit(key, 1)


def test_a_class_without_a_node_and_without_a_ready_job_is_forgotten(node: Puppet) -> None:
    known = node.store.key("classes")
    node.submit("usual")
    for i in range(300):
        node.submit("a", queue=f"old{i}", job_id=f"j{i}")
    for i in range(300):
        node.lanes.cancel(f"j{i}")
    assert node.store._client.scard(known) >= 300
    for _ in range(20):
        node.sweep()
    assert node.store._client.smembers(known) == {b"shop\ncelery"}  # type: ignore[comparison-overlap]
    node.order()


def test_a_job_whose_class_was_forgotten_while_it_waited_is_taken_in_its_turn(node: Puppet) -> None:
    node.submit("a", job_id="first")
    taken = node.must_take()
    node.submit("a", queue="later", job_id="second")
    node.sweep()
    assert node.store._client.smembers(node.store.key("classes")) == {b"shop\ncelery"}  # type: ignore[comparison-overlap]
    other = Puppet(node.store, "two")
    other.up(queue="later")
    assert other.take() is None
    node.finish(taken)
    found = other.must_take()
    assert found.id == "second"
    other.finish(found)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_deferred_submit_melts_into_its_equal_whatever_the_limit(node: Puppet, limit: int) -> None:
    node.lanes.set_limit("a", limit)
    numbers = itertools.count()
    ran = []
    for _ in range(4):
        for _ in range(3):
            node.submit("a", when_busy="defer", job_id=f"j{next(numbers)}")
        ready = [one for one in node.lanes.lane("a").jobs if node.lanes.job(one).state in ("ready", "waiting")]
        assert len(ready) == 1
        if taken := node.take():
            ran.append(taken)
    while ran:
        node.finish(ran.pop())
        while taken := node.take():
            ran.append(taken)
    node.lanes.set_limit("a", 1)
