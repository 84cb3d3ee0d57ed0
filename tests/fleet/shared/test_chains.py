"""Chains as jobs: their steps run one after another within the lane, and what they hand on is kept between them."""

from typing import Any

import pytest
from celery import chain, chord, group

from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

FAST = {"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 4}


NODE = Node("depot", 2, settings=FAST)


@pytest.fixture
def depot(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.depot


def names(fleet: Fleet, what: str = "begin") -> list[str]:
    return [stamp.name for stamp in fleet.stamps(what=what)]


def test_each_step_is_given_the_result_of_the_one_before_unless_it_is_immutable(fleet: Fleet, depot: Any) -> None:
    order = chain(depot.step.s([], "a"), depot.step.s("b"), depot.step.si(["x"], "c"), depot.step.s("d"))
    job = depot.coordinator.wait(depot.coordinator.submit("k", order).id, 60)
    assert (job.state, job.result, names(fleet)) == ("succeeded", ["x", "c", "d"], ["a", "b", "c", "d"])
    fences = [stamp.fence for stamp in fleet.stamps(what="begin")]
    assert fences == sorted(set(fences)), "each step is a taking of its own"
    assert depot.app.AsyncResult(job.id).get(timeout=60) == ["x", "c", "d"]


def test_a_chain_within_a_chain_is_laid_flat(depot: Any) -> None:
    inner = chain(depot.step.s("b"), depot.step.s("c"))
    order = depot.coordinator.submit("k", chain(depot.step.s([], "a"), inner, depot.step.s("d")))
    assert depot.coordinator.wait(order.id, 60).result == ["a", "b", "c", "d"]


@pytest.mark.parametrize("deadly", [False, True], ids=["raises", "kills its process"])
def test_an_order_resumes_at_the_step_that_failed(fleet: Fleet, depot: Any, deadly: bool) -> None:
    steps = chain(depot.step.s([], "a"), depot.step.s("b"), depot.stumble.s("c", 3, deadly), depot.step.s("d"))
    job = depot.coordinator.submit("k", steps, max_attempts=3, retry_delay=0)
    after = depot.coordinator.submit("k", depot.work.s("after"))
    assert depot.coordinator.wait(after.id, 60).state == "succeeded"
    found = depot.coordinator.job(job.id)
    assert (found.state, found.result) == ("succeeded", ["a", "b", "c", "d"])
    assert (found.attempt, found.losses) == (3, 2 if deadly else 0)
    assert names(fleet) == ["a", "b", "c", "c", "c", "d", "after"]


def test_an_order_whose_last_step_is_lost_does_not_begin_again(fleet: Fleet, depot: Any) -> None:
    job = depot.coordinator.submit("k", chain(depot.step.s([], "a"), depot.stumble.s("last", 2, True)))
    assert depot.coordinator.wait(job.id, 60).result == ["a", "last"]
    assert names(fleet) == ["a", "last", "last"]


def test_attempts_are_counted_over_the_whole_order(fleet: Fleet, depot: Any) -> None:
    steps = chain(depot.stumble.s([], "a", 2), depot.step.s("b"), depot.fail.si("c"))
    job = depot.coordinator.submit("k", steps, max_attempts=3, retry_delay=0)
    found = depot.coordinator.wait(job.id, 60)
    assert (found.state, found.step, found.error["message"]) == ("failed", 2, "c")
    assert names(fleet) == ["a", "a", "b", "c", "c"], "one attempt failed in the first step, two were left"


def test_a_failed_order_that_is_retried_by_hand_goes_on_at_its_step(fleet: Fleet, depot: Any) -> None:
    job = depot.coordinator.submit("k", chain(depot.step.s([], "a"), depot.stumble.s("b", 2), depot.step.s("c")))
    assert depot.coordinator.wait(job.id, 60).state == "failed"
    depot.coordinator.retry(job.id, why="once more")
    wait_until(lambda: depot.coordinator.job(job.id).state == "succeeded")
    assert depot.coordinator.job(job.id).result == ["a", "b", "c"]
    assert names(fleet) == ["a", "b", "b", "c"]


def test_an_order_may_begin_at_a_later_step(fleet: Fleet, depot: Any) -> None:
    steps = chain(depot.step.s([], "a"), depot.step.s(["given"], "b"), depot.step.s("c"))
    job = depot.coordinator.submit("k", steps, start_at=1)
    assert depot.coordinator.wait(job.id, 60).result == ["given", "b", "c"]
    assert names(fleet) == ["b", "c"]


@pytest.mark.parametrize("shape", ["group", "chord", "group first", "group last", "chord alone"])
def test_a_group_or_chord_is_a_step_that_parks(depot: Any, shape: str) -> None:
    add, total = depot.add, depot.total
    both = group(add.s(10), add.s(20))
    made: dict[str, tuple[Any, Any]] = {
        "group": (chain(add.s(1, 2), both, total.s(), add.s(100)), 136),
        "chord": (add.s(1, 2) | chord([add.s(10), add.s(20)], total.s()) | add.s(100), 136),
        "group first": (chain(group(add.s(1, 2), add.s(3, 4)), total.s()), 10),
        "group last": (chain(add.s(1, 2), group(add.s(10), add.si(1, 1))), [13, 2]),
        "chord alone": (chord([add.s(1, 2), add.s(3, 4)], total.s()), 10),
    }
    order, result = made[shape]
    job = depot.coordinator.wait(depot.coordinator.submit("k", order).id, 60)
    assert (job.state, job.result) == ("succeeded", result)


def test_a_step_whose_tasks_store_no_result_fails_rather_than_waiting_for_ever(depot: Any) -> None:
    order = chain(depot.add.s(1, 2), group(depot.silent.si("a"), depot.silent.si("b")))
    job = depot.coordinator.wait(depot.coordinator.submit("k", order, max_attempts=3).id, 60)
    assert (job.state, job.step, job.error["type"]) == ("failed", 1, "NoRetry")
    assert "stores no result" in job.error["message"]


def test_links_of_the_whole_chain_are_called_once_at_its_end(fleet: Fleet, depot: Any) -> None:
    good = chain(depot.work.s("a"), depot.work.si("b"))
    good.link(depot.step.si([], "good"))
    bad = chain(depot.work.s("c"), depot.fail.si("d"), depot.work.si("never"))
    bad.on_error(depot.step.si([], "bad"))
    both = group(depot.work.s("e"), depot.work.s("f"))
    for key, order in (("k", good), ("m", bad), ("n", both.set(link=depot.step.si([], "both")))):
        depot.coordinator.submit(key, order)
    fleet.begun("good", "bad", "both")
    last = depot.coordinator.submit("k", depot.work.s("last"))
    assert depot.coordinator.wait(last.id, 60).state == "succeeded"
    assert sorted(names(fleet)) == sorted(["a", "b", "good", "c", "d", "bad", "e", "f", "both", "last"])


def test_an_order_whose_node_dies_goes_on_at_its_step_on_another(fleet: Fleet, depot: Any) -> None:
    coordinator = depot.coordinator
    first = fleet.worker("first", app="depot")
    coordinator.drain("one@test", why="only the first one is to work")
    job = coordinator.submit("k", chain(depot.step.s([], "a"), depot.held.si("b"), depot.step.si(["b"], "c")))
    fleet.begun("b")
    coordinator.undrain("one@test")
    supervisor = first.supervisor()
    first.kill()
    supervisor.kill()
    wait_until(lambda: names(fleet).count("b") == 2)
    fleet.go("b")
    found = coordinator.wait(job.id, 60)
    assert (found.state, found.node, found.losses) == ("succeeded", "one@test", 1)
    assert names(fleet) == ["a", "b", "b", "c"]


def test_a_step_with_a_queue_waits_for_a_node_that_serves_it_and_keeps_the_lane(fleet: Fleet, depot: Any) -> None:
    coordinator = depot.coordinator
    agent = depot.step.s("agent").set(queue="agents")
    job = coordinator.submit("k", chain(depot.step.s([], "a"), agent, depot.step.s("c")))
    after = coordinator.submit("k", depot.work.s("after"))
    wait_until(lambda: coordinator.job(job.id).step == 1)
    other = coordinator.submit("other", depot.work.s("other"))
    assert coordinator.wait(other.id, 60).state == "succeeded"
    assert (coordinator.job(job.id).state, coordinator.job(after.id).state) == ("ready", "waiting")
    fleet.worker("agent", 1, "-Q", "agents", app="depot")
    assert coordinator.wait(after.id, 60).state == "succeeded"
    assert coordinator.job(job.id).result == ["a", "agent", "c"]
    assert names(fleet) == ["a", "other", "agent", "c", "after"]


def test_a_step_that_parks_holds_its_lane_and_no_worker(fleet: Fleet, depot: Any) -> None:
    depot.coordinator.submit("busy", depot.held.s("busy"))
    fleet.begun("busy")  # one slot is left
    job = depot.coordinator.submit("k", chain(depot.work.s("a"), group(depot.held.si("b"), depot.work.si("c"))))
    after = depot.coordinator.submit("k", depot.work.s("after"))
    fleet.begun("b")
    fleet.go("b")
    assert depot.coordinator.wait(after.id, 60).state == "succeeded"
    assert depot.coordinator.job(job.id).result == ["b", "c"]
    assert names(fleet)[-1] == "after"
    fleet.go("busy")
