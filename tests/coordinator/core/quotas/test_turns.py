"""Who stands in a quota's way, and who does not: lanes and quotas together."""

from collections.abc import Callable

import pytest

from coordinator import Coordinator
from coordinator.core.jobs.options import Use
from tests.coordinator.core.quotas.test_random import retarget
from tests.coordinator.core.quotas.units import used
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until

LOSES_ITS_TURN = pytest.mark.parametrize(
    "lose_turn",
    [
        lambda node: node.submit("lane", job_id="first", priority=1),
        lambda node: node.lanes.pause("lane"),
        lambda node: (node.submit("lane", job_id="behind"), node.lanes.move("big", to="back")),
    ],
    ids=["overtaken", "paused", "moved"],
)


@LOSES_ITS_TURN
def test_a_job_that_loses_its_turn_in_a_lane_stands_in_the_way_of_no_quota(
    node: Puppet, coordinator: Coordinator, lose_turn: Callable[[Puppet], object]
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit("x", job_id="x", uses="q")
    node.must_take()
    node.submit("lane", job_id="big", uses={"q": 2})
    assert node.take_all() == []
    lose_turn(node)
    node.submit("small", job_id="small", uses="q")
    assert "small" in [taken.id for taken in node.take_all()]


@LOSES_ITS_TURN
def test_a_job_that_loses_its_turn_in_a_lane_gives_back_what_was_set_apart_for_it(
    node: Puppet, coordinator: Coordinator, lose_turn: Callable[[Puppet], object]
) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    node.submit("x", job_id="x", uses="b")
    x = node.must_take()
    node.submit("lane", job_id="big", uses=["a", "b"])
    node.pass_a_minute("big")
    coordinator.cool_down("b", 0.001)
    wait_until(lambda: node.sweep() is not None and used(coordinator, "a").units == 1)
    lose_turn(node)
    assert used(coordinator, "a").units == 0
    node.submit([], job_id="other", uses="a")
    taken = node.take_all()
    assert "other" in [one.id for one in taken]
    node.lanes.resume("lane")
    for one in (x, *taken):
        node.finish(one)
    assert node.order()[-1] == "big"
    assert (used(coordinator, "a").units, used(coordinator, "b").units) == (0, 0)


def test_a_job_that_keeps_its_units_until_its_end_does_not_count_twice_when_it_is_ready_again(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="keeps", uses={"q": Use(until="end")}, max_attempts=2)
    node.finish(node.must_take(), "raised")
    assert (node.lanes.job("keeps").state, used(coordinator, "q").units) == ("ready", 1)
    node.submit([], job_id="other", uses="q")
    assert node.lanes.job("other").state == "ready"
    assert [taken.id for taken in node.take_all()] == ["keeps", "other"]


def test_who_uses_all_of_a_quota_is_alone_also_where_there_are_more_units_since(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="alone", uses="q", exclusive=True)
    alone = node.must_take()
    coordinator.quota("q", concurrency=5)
    node.submit([], job_id="other", uses="q")
    assert node.take_all() == []
    node.finish(alone)
    assert node.order() == ["other"]


def test_who_uses_all_of_a_quota_is_alone_also_where_it_bounds_a_rate_only(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", rate="1000000/s", burst=1000)  # its bucket begins empty
    node.submit([], job_id="alone", uses="q", exclusive=True)
    alone = node.must_take()
    node.submit([], job_id="other", uses="q")
    assert node.take_all() == []
    node.finish(alone)
    assert node.order() == ["other"]


def test_a_quota_of_no_units_lets_nobody_go_who_would_use_all(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=0)
    node.submit([], job_id="alone", uses="q", exclusive=True)
    assert node.take_all() == []
    coordinator.quota("q", concurrency=2)
    assert node.order() == ["alone"]


def test_a_held_job_that_is_retried_stands_behind_those_that_were_started_since(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="held", uses={"q": 2}, on_failure="hold")
    node.finish(node.must_take(), "failed")
    for name in ("other", "runs"):
        node.submit([], job_id=name, uses="q", max_attempts=2)
    other, _ = node.take_all()
    coordinator.cool_down("q", 60)
    node.finish(other, "raised")
    wait_until(lambda: node.store.now() > node.lanes.job("other").taken.timestamp() * 1000)  # type: ignore[union-attr]
    node.lanes.retry("held")
    coordinator.cool_down("q")
    assert [taken.id for taken in node.take_all()] == ["other"]


def test_a_queued_job_that_gets_another_task_goes_where_none_of_those_was_offered(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=1)
    node.submit([], job_id="ready", uses="q")
    node.submit([], job_id="queued", uses="q", task="shop.other")
    node.submit([], job_id="behind", uses="q", task="shop.other")
    assert [node.lanes.job(one).state for one in ("ready", "queued", "behind")] == ["ready", "ready", "waiting"]
    retarget(node.store, "behind", "shop.third")
    assert node.lanes.job("behind").state == "ready"
    for name in ("ready", "queued", "behind"):
        node.lanes.cancel(name)


def test_a_job_that_keeps_its_units_goes_before_those_that_wait_for_them(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="first", uses="q", max_attempts=2)
    node.submit([], job_id="keeps", uses={"q": Use(until="end")}, max_attempts=2)
    first, keeps = node.take_all()
    node.submit([], job_id="big", uses={"q": 2}, max_attempts=2)
    coordinator.cool_down("q", 60)
    for taken in (first, keeps):
        node.finish(taken, "raised")
    coordinator.quota("q", concurrency=1)
    coordinator.cool_down("q")
    assert node.must_take().id == "keeps"


def test_a_job_that_keeps_units_gets_those_that_were_set_apart_for_one_that_waits_for_it(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    node.submit([], job_id="keeps", uses={"a": 1, "b": Use(until="end")}, max_attempts=2)
    node.finish(node.must_take(), "raised", delay=60_000)
    node.submit([], job_id="waits", uses=["a", "b"])
    node.pass_a_minute("waits")
    coordinator.cool_down("b")
    assert used(coordinator, "a").units == 1
    node.lanes.retry("keeps")
    assert node.order() == ["keeps", "waits"]


def test_no_units_are_set_apart_that_were_offered_to_another(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("a", concurrency=1)
    coordinator.quota("b", concurrency=1)
    coordinator.cool_down("b", 60)
    node.submit([], job_id="first", uses="a")
    node.submit([], job_id="waits", uses=["a", "b"], task="shop.other")
    node.pass_a_minute("waits")
    coordinator.quota("b", concurrency=2)
    assert used(coordinator, "a").units == 0
    assert node.must_take().id == "first"


def test_a_lock_in_plain_code_does_not_pass_a_job_that_has_its_turn(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.quota("q", concurrency=2)
    node.submit([], job_id="x", uses="q")
    x = node.must_take()
    node.submit([], job_id="big", uses={"q": 2})
    node.store.step("lock_take", "lock", "", "queue", "lock-token", 60_000, 0, "1 - q")
    node.finish(x)
    big = node.must_take()
    assert (big.id, node.lanes.job("lock").state) == ("big", "waiting")
    node.finish(big)
    assert node.lanes.job("lock").state == "running"
    node.store.step("lock_release", "lock", "lock-token")


def test_a_job_with_units_set_apart_goes_before_those_that_wait_for_these(
    node: Puppet, coordinator: Coordinator
) -> None:
    coordinator.quota("a", concurrency=2)
    coordinator.quota("b", concurrency=1)
    coordinator.cool_down("b", 60)
    node.submit([], job_id="waits", uses=["a", "b"])
    node.pass_a_minute("waits")
    coordinator.quota("b", concurrency=2)
    assert used(coordinator, "a").units == 1
    coordinator.cool_down("a", 60)
    coordinator.cool_down("b")
    node.submit([], job_id="all", uses={"a": 2}, priority=1)
    coordinator.cool_down("a")
    assert node.order() == ["waits", "all"]
