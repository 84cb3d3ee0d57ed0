"""A task that nobody has is refused where it is submitted, and what the nodes say of it is enough to run it."""

from collections.abc import Iterator

import pytest
from celery import group

from coordinator import Coordinator, InvalidJob, Submission
from coordinator.errors import CoordinatorError
from coordinator.fleet.nodes import Nodes
from tests.harness.hand_node import Puppet
from tests.harness.installation import Installation


def signature(task: str) -> dict[str, object]:
    return {"task": task}


@pytest.fixture
def shop_node(coordinator: Coordinator) -> Iterator[Nodes]:
    """A node of the app `shop` with a default queue of its own, and a task that goes elsewhere."""
    nodes = Nodes(coordinator.store)
    about = {
        "app": "shop",
        "capacity": 4,
        "ordinary": 0,
        "load": 0,
        "queue": "counter",
        "routes": '{"shop.lift": "heavy"}',
    }
    serves = ["app shop", "queue counter", "queue heavy"]
    nodes.register("one", "a", about, serves, ["shop.ship", "shop.lift"])
    yield nodes
    nodes.leave("one", "a")


def ended(coordinator: Coordinator, made: Submission) -> str:
    """Its class; the job is gone after that."""
    kept = coordinator.store.client.hget(coordinator.store.key("job", made.job_id), "class")
    coordinator.cancel(made.job_id)
    return (kept or b"").decode()


def test_a_typo_of_a_plain_client_is_refused_and_blocks_no_lane(coordinator: Coordinator, shop_node: Nodes) -> None:
    with pytest.raises(InvalidJob, match=r"no living node has the task 'shop\.shp'; did you mean 'shop\.ship'\?"):
        coordinator.submit("order/1", signature("shop.shp"))
    assert coordinator.lane("order/1").state == "empty"
    with pytest.raises(InvalidJob, match="one of refuse, wait"):
        coordinator.submit("order/1", signature("shop.ship"), unknown="perhaps")  # type: ignore[typeddict-item]


def test_a_plain_client_takes_app_and_queue_from_the_nodes(coordinator: Coordinator, shop_node: Nodes) -> None:
    submit = coordinator.submit
    made = submit("a", signature("shop.ship"))
    assert (made.outcome, ended(coordinator, made)) == ("started", "shop\ncounter")
    assert ended(coordinator, submit("a", signature("shop.lift"))) == "shop\nheavy"
    assert ended(coordinator, submit("a", group(signature("shop.lift"), signature("shop.ship")))) == "shop\nheavy"


def test_what_waits_for_a_node_is_queued_in_front(coordinator: Coordinator, shop_node: Nodes) -> None:
    made = coordinator.submit("a", signature("shop.new"), unknown="wait")
    assert (made.outcome, made.position) == ("queued", 0)
    coordinator.cancel(made.job_id)


def test_a_job_in_front_is_started_only_where_a_living_node_can_run_it(node: Puppet) -> None:
    assert [node.submit(key, task=task).outcome for key, task in (("a", "shop.work"), ("b", "shop.nope"))] == [
        "started", "queued",
    ]  # fmt: skip
    node.nodes.leave("one", "a")
    assert node.submit("c").outcome == "queued"
    for key in "abc":
        node.lanes.cancel(node.lanes.lane(key).jobs[0])


def test_an_app_waits_for_a_node_only_where_it_is_told_to(apps: Installation) -> None:
    coordinator = apps.shop.coordinator
    with pytest.raises(InvalidJob, match=r"unknown task 'shop\.nope'"):
        coordinator.submit("a", signature("shop.nope"))
    made = coordinator.submit("a", signature("shop.nope"), unknown="wait")
    assert (made.outcome, ended(coordinator, made)) == ("queued", "shop\ncelery")


def test_a_submission_that_no_coordinator_made_says_whom_to_ask() -> None:
    with pytest.raises(CoordinatorError, match="ask the coordinator"):
        Submission("j", "started", 0).get()
