"""Chains whose nodes die, come later, or have room for one step."""

from typing import Any

import pytest
from celery import Celery, chain, group

from coordinator import Coordinator, InvalidJob
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

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
    found = coordinator.wait(job.id, 20)
    assert (found.state, found.node, found.losses) == ("succeeded", second.name, 1)
    assert names(fleet) == ["a", "b", "b", "c"]


def test_the_rollback_of_an_order_is_given_the_step_that_failed_and_the_last_result(fleet: Fleet) -> None:
    fleet.configure(**FAST)
    fleet.worker()
    shop = fleet.shop
    job = fleet.coordinator.submit(
        "k", chain(shop.add.s(1, 2), shop.add.s("x"), shop.add.s(1)), rollback=shop.undo.s("u")
    )
    found = fleet.coordinator.wait(job.id, 20)
    assert (found.state, found.step, found.error["type"]) == ("rolled_back", 1, "TypeError")
    assert names(fleet, "undone") == ["u"]


def test_a_step_with_a_queue_waits_for_a_node_that_serves_it_and_keeps_the_lane(fleet: Fleet, depot: Any) -> None:
    coordinator = depot.coordinator
    agent = depot.step.s("agent").set(queue="agents")
    job = coordinator.submit("k", chain(depot.step.s([], "a"), agent, depot.step.s("c")))
    after = coordinator.submit("k", depot.work.s("after"))
    wait_until(lambda: coordinator.job(job.id).step == 1)
    other = coordinator.submit("other", depot.work.s("other"))
    assert coordinator.wait(other.id, 20).state == "succeeded"
    assert (coordinator.job(job.id).state, coordinator.job(after.id).state) == ("ready", "waiting")
    fleet.worker("agent", 1, "-Q", "agents", app="depot")
    assert coordinator.wait(after.id, 20).state == "succeeded"
    assert coordinator.job(job.id).result == ["a", "agent", "c"]
    assert names(fleet) == ["a", "other", "agent", "c", "after"]


def test_a_step_that_parks_holds_its_lane_and_no_worker(fleet: Fleet) -> None:
    fleet.configure(**FAST)
    fleet.worker(concurrency=1, app="depot")
    depot = fleet.depot
    job = depot.coordinator.submit("k", chain(depot.work.s("a"), group(depot.held.si("b"), depot.work.si("c"))))
    after = depot.coordinator.submit("k", depot.work.s("after"))
    fleet.begun("b")
    fleet.go("b")
    assert depot.coordinator.wait(after.id, 20).state == "succeeded"
    assert depot.coordinator.job(job.id).result == ["b", "c"]
    assert names(fleet)[-1] == "after"


def producer(fleet: Fleet) -> Coordinator:
    """An app of the depot's name that has no tasks and only names them."""
    app = Celery("depot", broker=fleet.environ["TEST_BROKER"], set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": fleet.prefix + "."}
    app.conf.task_default_queue = "depot"
    return Coordinator(app)


def test_a_producer_that_only_names_tasks_is_believed_until_a_node_can_say(fleet: Fleet, alone: Any) -> None:
    client = producer(fleet)
    assert client.app
    early = client.submit("k", client.app.signature("tests.harness.apps.depot.work", args=("early",)))
    typo = client.submit("typo", client.app.signature("depot.typo"))
    fleet.worker(app="depot")
    late = client.submit("k", client.app.signature("tests.harness.apps.depot.work", args=("late",)))
    with pytest.raises(InvalidJob, match="nor a living node"):
        client.submit("k", client.app.signature("depot.other"))
    assert client.wait(late.id, 20).state == client.job(early.id).state == "succeeded"
    client.cancel(typo.id)
    client.app.close()
