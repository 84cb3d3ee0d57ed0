"""Chains as jobs: their steps run one after another within the lane, and what they hand on is kept between them."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from coordinator import Coordinator, InvalidJob
from tests.fleet import Fleet
from tests.waiting import wait_until

FAST = {"lock_ttl": 2, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 2}


@pytest.fixture
def depot(fleet: Fleet) -> Any:
    """The module of the app, with one node of it."""
    fleet.configure(**FAST)
    fleet.worker(concurrency=2, app="depot")
    return fleet.depot


@pytest.fixture
def alone(fleet: Fleet) -> Any:
    """The module of the app, without a node."""
    fleet.configure(**FAST)
    return fleet.depot


def names(fleet: Fleet, what: str = "begin") -> list[str]:
    return [stamp.name for stamp in fleet.stamps(what=what)]


def test_each_step_is_given_the_result_of_the_one_before_unless_it_is_immutable(fleet: Fleet, depot: Any) -> None:
    order = chain(depot.step.s([], "a"), depot.step.s("b"), depot.step.si(["x"], "c"), depot.step.s("d"))
    job = depot.coordinator.wait(depot.coordinator.submit("k", order).job_id, 20)
    assert (job.state, job.result, names(fleet)) == ("succeeded", ["x", "c", "d"], ["a", "b", "c", "d"])
    fences = [stamp.fence for stamp in fleet.stamps(what="begin")]
    assert fences == sorted(set(fences)), "each step is a taking of its own"
    assert depot.app.AsyncResult(job.id).get(timeout=10) == ["x", "c", "d"]


def test_a_chain_within_a_chain_is_laid_flat(depot: Any) -> None:
    inner = chain(depot.step.s("b"), depot.step.s("c"))
    order = depot.coordinator.submit("k", chain(depot.step.s([], "a"), inner, depot.step.s("d")))
    assert depot.coordinator.wait(order.job_id, 20).result == ["a", "b", "c", "d"]


@pytest.mark.parametrize("deadly", [False, True], ids=["raises", "kills its process"])
def test_an_order_resumes_at_the_step_that_failed(fleet: Fleet, depot: Any, deadly: bool) -> None:
    steps = chain(depot.step.s([], "a"), depot.step.s("b"), depot.stumble.s("c", 5, deadly), depot.step.s("d"))
    job = depot.coordinator.submit("k", steps, max_attempts=3, retry_delay=0)
    after = depot.coordinator.submit("k", depot.work.s("after"))
    assert depot.coordinator.wait(after.job_id, 30).state == "succeeded"
    found = depot.coordinator.job(job.job_id)
    assert (found.state, found.result) == ("succeeded", ["a", "b", "c", "d"])
    assert (found.attempt, found.losses) == (6, 2 if deadly else 0)
    assert names(fleet) == ["a", "b", "c", "c", "c", "d", "after"]


def test_an_order_whose_last_step_is_lost_does_not_begin_again(fleet: Fleet, depot: Any) -> None:
    job = depot.coordinator.submit("k", chain(depot.step.s([], "a"), depot.stumble.s("last", 3, True)))
    assert depot.coordinator.wait(job.job_id, 30).result == ["a", "last"]
    assert names(fleet) == ["a", "last", "last"]


def test_an_order_whose_node_dies_goes_on_at_its_step_on_another(fleet: Fleet, depot: Any) -> None:
    coordinator = depot.coordinator
    job = coordinator.submit("k", chain(depot.step.s([], "a"), depot.held.si("b"), depot.step.si(["b"], "c")))
    fleet.begun("b")
    first = fleet.workers[0]
    second = fleet.worker("two", app="depot")
    warden = first.warden()
    first.kill()
    warden.kill()
    wait_until(lambda: names(fleet).count("b") == 2)
    fleet.go("b")
    found = coordinator.wait(job.job_id, 20)
    assert (found.state, found.node, found.losses) == ("succeeded", second.name, 1)
    assert names(fleet) == ["a", "b", "b", "c"]


def test_attempts_are_counted_over_the_whole_order(fleet: Fleet, depot: Any) -> None:
    steps = chain(depot.stumble.s([], "a", 2), depot.step.s("b"), depot.fail.si("c"))
    job = depot.coordinator.submit("k", steps, max_attempts=3, retry_delay=0)
    found = depot.coordinator.wait(job.job_id, 20)
    assert (found.state, found.step, found.error["message"]) == ("failed", 2, "c")
    assert names(fleet) == ["a", "a", "b", "c", "c"], "one attempt failed in the first step, two were left"


def test_a_failed_order_that_is_retried_by_hand_goes_on_at_its_step(fleet: Fleet, depot: Any) -> None:
    job = depot.coordinator.submit("k", chain(depot.step.s([], "a"), depot.stumble.s("b", 3), depot.step.s("c")))
    assert depot.coordinator.wait(job.job_id, 20).state == "failed"
    depot.coordinator.retry(job.job_id, why="once more")
    wait_until(lambda: depot.coordinator.job(job.job_id).state == "succeeded")
    assert depot.coordinator.job(job.job_id).result == ["a", "b", "c"]
    assert names(fleet) == ["a", "b", "b", "c"]


def test_the_rollback_of_an_order_is_given_the_step_that_failed_and_the_last_result(fleet: Fleet) -> None:
    fleet.configure(**FAST)
    fleet.worker()
    shop = fleet.shop
    job = fleet.coordinator.submit(
        "k", chain(shop.add.s(1, 2), shop.add.s("x"), shop.add.s(1)), rollback=shop.undo.s("u")
    )
    found = fleet.coordinator.wait(job.job_id, 20)
    assert (found.state, found.step, found.error["type"]) == ("rolled_back", 1, "TypeError")
    assert names(fleet, "undone") == ["u"]


def test_an_order_may_begin_at_a_later_step(fleet: Fleet, depot: Any) -> None:
    steps = chain(depot.step.s([], "a"), depot.step.s(["given"], "b"), depot.step.s("c"))
    job = depot.coordinator.submit("k", steps, start_at=1)
    assert depot.coordinator.wait(job.job_id, 20).result == ["given", "b", "c"]
    assert names(fleet) == ["b", "c"]


def test_a_step_with_a_queue_waits_for_a_node_that_serves_it_and_keeps_the_lane(fleet: Fleet, depot: Any) -> None:
    coordinator = depot.coordinator
    agent = depot.step.s("agent").set(queue="agents")
    job = coordinator.submit("k", chain(depot.step.s([], "a"), agent, depot.step.s("c")))
    after = coordinator.submit("k", depot.work.s("after"))
    wait_until(lambda: coordinator.job(job.job_id).step == 1)
    other = coordinator.submit("other", depot.work.s("other"))
    assert coordinator.wait(other.job_id, 20).state == "succeeded"
    assert (coordinator.job(job.job_id).state, coordinator.job(after.job_id).state) == ("ready", "waiting")
    fleet.worker("agent", 1, "-Q", "agents", app="depot")
    assert coordinator.wait(after.job_id, 20).state == "succeeded"
    assert coordinator.job(job.job_id).result == ["a", "agent", "c"]
    assert names(fleet) == ["a", "other", "agent", "c", "after"]


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
    job = depot.coordinator.wait(depot.coordinator.submit("k", order).job_id, 30)
    assert (job.state, job.result) == ("succeeded", result)


def test_a_step_whose_tasks_store_no_result_fails_rather_than_waiting_for_ever(depot: Any) -> None:
    order = chain(depot.add.s(1, 2), group(depot.silent.si("a"), depot.silent.si("b")))
    job = depot.coordinator.wait(depot.coordinator.submit("k", order, max_attempts=3).job_id, 20)
    assert (job.state, job.step, job.error["type"]) == ("failed", 1, "NoRetry")
    assert "stores no result" in job.error["message"]


def test_a_step_that_parks_holds_its_lane_and_no_worker(fleet: Fleet) -> None:
    fleet.configure(**FAST)
    fleet.worker(concurrency=1, app="depot")
    depot = fleet.depot
    job = depot.coordinator.submit("k", chain(depot.work.s("a"), group(depot.held.si("b"), depot.work.si("c"))))
    after = depot.coordinator.submit("k", depot.work.s("after"))
    fleet.begun("b")
    fleet.go("b")
    assert depot.coordinator.wait(after.job_id, 20).state == "succeeded"
    assert depot.coordinator.job(job.job_id).result == ["b", "c"]
    assert names(fleet)[-1] == "after"


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
    assert depot.coordinator.wait(last.job_id, 20).state == "succeeded"
    assert sorted(names(fleet)) == sorted(["a", "b", "good", "c", "d", "bad", "e", "f", "both", "last"])


def test_options_of_the_whole_chain_are_those_of_its_steps_unless_they_have_their_own(alone: Any) -> None:
    order = chain(alone.step.s([], "a").set(queue="own"), alone.step.s("b")).set(queue="both", time_limit=7)
    job_id = alone.coordinator.submit("k", order).job_id
    steps = alone.coordinator.core.spec(job_id)["steps"]
    assert [step["class"] for step in steps] == ["depot\nown", "depot\nboth"]
    assert [step["limit"] for step in steps] == [7000, 7000]
    alone.coordinator.cancel(job_id)


def _typo(depot: Any) -> Any:
    return depot.app.signature("depot.typo")


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a link within": (
        lambda d: chain(d.work.s("a").set(link=[d.work.s("x")]), d.work.si("b")),
        "step 0, .* link there",
    ),
    "an error link": (lambda d: chain(d.work.s("a"), d.work.si("b").on_error(d.work.s("x"))), "step 1, .* link_error"),
    "a start within": (lambda d: chain(d.work.s("a"), d.work.si("b").set(countdown=3)), "step 1, .* countdown there"),
    "an unknown task": (_typo, "unknown task 'depot.typo'"),
    "an unknown step": (lambda d: chain(d.work.s("a"), _typo(d)), "unknown task 'depot.typo'"),
    "an unknown member": (lambda d: group(d.work.s("a"), _typo(d)), "unknown task 'depot.typo'"),
    "an unknown body": (lambda d: chord([d.work.s("a"), d.work.s("b")], _typo(d)), "unknown task 'depot.typo'"),
    "an argument": (lambda d: chain(d.work.s("a"), d.work.si(object())), "argument 0 of step 1 is not JSON: object"),
    "a member's": (
        lambda d: chain(d.work.s("a"), group(d.work.si("b"), d.work.si(object()))),
        "argument 0 of .*work of step 1 is not JSON: object",
    ),
    "a map": (lambda d: d.work.map(["a"]), "a map cannot be a job"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name_before_anything_is_written(alone: Any, what: str) -> None:
    make, text = REFUSED[what]
    with pytest.raises(InvalidJob, match=text):
        alone.coordinator.submit("k", make(alone))
    assert alone.coordinator.lanes() == []
    assert alone.coordinator.counts()["created"] == 0


@pytest.mark.parametrize(("steps", "text"), [(2, "the chain has steps 0 to 1"), (1, "start_at is for a chain")])
def test_a_step_to_begin_with_that_is_not_there_is_refused(alone: Any, steps: int, text: str) -> None:
    one = alone.work.s("a")
    with pytest.raises(InvalidJob, match=text):
        alone.coordinator.submit("k", chain(one, one) if steps == 2 else one, start_at=steps)


def test_a_rollback_of_an_unknown_task_is_refused(alone: Any) -> None:
    with pytest.raises(InvalidJob, match=r"unknown task 'depot\.undo'"):
        alone.coordinator.submit("k", alone.work.s("a"), rollback=alone.app.signature("depot.undo"))


def producer(fleet: Fleet) -> Coordinator:
    """An app of the depot's name that has no tasks and only names them."""
    app = Celery("depot", broker=fleet.environ["TEST_BROKER"], set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": fleet.prefix + "."}
    app.conf.task_default_queue = "depot"
    return Coordinator(app)


def test_a_producer_that_only_names_tasks_is_believed_until_a_node_can_say(fleet: Fleet, alone: Any) -> None:
    client = producer(fleet)
    assert client.app
    early = client.submit("k", client.app.signature("tests.apps.depot.work", args=("early",)))
    typo = client.submit("typo", client.app.signature("depot.typo"))
    fleet.worker(app="depot")
    late = client.submit("k", client.app.signature("tests.apps.depot.work", args=("late",)))
    with pytest.raises(InvalidJob, match="nor a living node"):
        client.submit("k", client.app.signature("depot.other"))
    assert client.wait(late.job_id, 20).state == client.job(early.job_id).state == "succeeded"
    client.cancel(typo.job_id)
    client.app.close()
