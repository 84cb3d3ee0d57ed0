"""A task that nobody has is refused where it is submitted, and what the nodes say of it is enough to run it."""

import time
from collections.abc import Iterator

import pytest
from celery import Celery, group

from coordinator import Coordinator, InvalidJob, Submission
from coordinator.core.fleet.nodes import About, Nodes
from coordinator.errors import CoordinatorError
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet, playing
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
    kept = coordinator.store._client.hget(coordinator.store.key("job", made.id), "class")
    coordinator.cancel(made.id)
    return (kept or b"").decode()


def test_a_typo_of_a_plain_client_is_refused_and_blocks_no_lane(coordinator: Coordinator, shop_node: Nodes) -> None:
    with pytest.raises(InvalidJob, match=r"no living node has the task 'shop\.shp'; did you mean 'shop\.ship'\?"):
        coordinator.submit("order/1", signature("shop.shp"))
    parts = [signature("shop.ship"), signature("shop.shp")]
    for canvas in (group(parts), signature("celery.chain") | {"subtask_type": "chain", "kwargs": {"tasks": parts}}):
        with pytest.raises(InvalidJob, match=r"no living node has the task 'shop\.shp'"):
            coordinator.submit("order/1", canvas)
    assert coordinator.lane("order/1").state == "empty"
    with pytest.raises(InvalidJob, match="one of refuse, wait"):
        coordinator.submit("order/1", signature("shop.ship"), if_unknown="perhaps")  # type: ignore[typeddict-item]


def test_a_plain_client_takes_app_and_queue_from_the_nodes(coordinator: Coordinator, shop_node: Nodes) -> None:
    submit = coordinator.submit
    made = submit("a", signature("shop.ship"))
    assert (made.outcome, ended(coordinator, made)) == ("started", "shop\ncounter")
    assert ended(coordinator, submit("a", signature("shop.lift"))) == "shop\nheavy"
    assert ended(coordinator, submit("a", group(signature("shop.lift"), signature("shop.ship")))) == "shop\nheavy"


def test_what_waits_for_a_node_is_queued_in_front(coordinator: Coordinator, shop_node: Nodes) -> None:
    made = coordinator.submit("a", signature("shop.new"), if_unknown="wait")
    assert (made.outcome, made.position) == ("queued", 0)
    coordinator.cancel(made.id)


def test_a_job_in_front_is_started_only_where_a_living_node_can_run_it(node: Puppet) -> None:
    assert [node.submit(key, task=task).outcome for key, task in (("a", "shop.work"), ("b", "shop.nope"))] == [
        "started", "queued",
    ]  # fmt: skip
    node.nodes.leave("one", "a")
    assert node.submit("c").outcome == "queued"
    for key in "abc":
        node.lanes.cancel(node.lanes.lane(key).jobs[0])


def test_a_restart_of_all_nodes_refuses_no_client(
    coordinator: Coordinator, shop_node: Nodes, client_at: ClientAt, caplog: pytest.LogCaptureFixture
) -> None:
    job_ids = [coordinator.submit("before", signature("shop.ship")).id]
    shop_node.leave("one", "a")
    fresh = client_at(coordinator.settings.url)
    for client, task in ((coordinator, "shop.ship"), (fresh, "shop.ship"), (fresh, "shop.shp")):
        made = [client.submit(f"{len(job_ids)}/{n}", signature(task)) for n in range(2)]
        job_ids += [one.id for one in made]
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 3, warned
    assert warned[1] == "no living node can run the task 'shop.ship' (queue 'celery'): its jobs wait for one"
    lacking = client_at(coordinator.settings.url).submit("l", signature("shop.ship"), needs=["gpu"])
    assert caplog.messages[-1].startswith("no living node can run the task 'shop.ship' (queue 'celery', labels gpu):")
    job_ids.append(lacking.id)
    for job_id in job_ids:
        coordinator.cancel(job_id)


def test_a_restart_of_an_apps_nodes_beside_those_of_another_refuses_no_client_that_knew_it(
    coordinator: Coordinator, shop_node: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(coordinator, coordinator.submit("a", signature("shop.lift"))) == "shop\nheavy"
    shop_node.leave("one", "a")
    shop_node.register(
        "other",
        "a",
        {"app": "press", "capacity": 1, "ordinary": 0, "load": 0},
        ["app press", "queue celery"],
        ["press.print"],
    )
    later(monkeypatch)
    assert ended(coordinator, coordinator.submit("a", signature("shop.lift"))) == "shop\nheavy"
    with pytest.raises(InvalidJob, match=r"no living node has the task 'shop\.left'"):
        coordinator.submit("a", signature("shop.left"))
    shop_node.leave("other", "a")


def later(monkeypatch: pytest.MonkeyPatch, seconds: float = 61) -> None:
    """So much passes in this process: a minute, where nothing is said."""
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + seconds)


def test_a_plain_client_follows_a_task_to_another_queue(
    coordinator: Coordinator, shop_node: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(coordinator, coordinator.submit("a", signature("shop.lift"))) == "shop\nheavy"
    shop_node.leave("one", "a")
    about: About = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0, "queue": "counter"}
    shop_node.register("one", "b", about, ["app shop", "queue counter"], ["shop.lift"])
    later(monkeypatch)
    assert ended(coordinator, coordinator.submit("a", signature("shop.lift"))) == "shop\ncounter"
    shop_node.leave("one", "b")


def test_while_an_app_is_deployed_its_own_task_is_accepted_and_said_once(
    apps: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    """Nodes live, and none of them has the task that this app has."""
    coordinator = apps.shop.coordinator
    Nodes(coordinator.store).register(
        "old", "a", {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0}, ["app shop", "queue celery"], []
    )
    made = [coordinator.submit(key, apps.shop.work.s("x")) for key in "ab"]
    assert [one.outcome for one in made] == ["queued", "queued"]
    (warned,) = (record.getMessage() for record in caplog.records)
    assert repr(apps.shop.work.name) in warned
    for one in made:
        coordinator.cancel(one.id)


def test_an_app_waits_for_a_node_only_where_it_is_told_to(apps: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = apps.shop.coordinator
    made = coordinator.submit("a", signature("shop.nope"))
    assert (made.outcome, ended(coordinator, made)) == ("queued", "shop\ncelery"), "no node lives: nobody knows"
    playing(apps.shop)
    later(monkeypatch, 2)
    with pytest.raises(InvalidJob, match=r"unknown task 'shop\.nope'"):
        coordinator.submit("a", signature("shop.nope"))
    made = coordinator.submit("a", signature("shop.nope"), if_unknown="wait")
    assert (made.outcome, ended(coordinator, made)) == ("queued", "shop\ncelery")


def test_a_submission_that_no_coordinator_made_says_whom_to_ask() -> None:
    with pytest.raises(CoordinatorError, match="ask the coordinator"):
        Submission("j", "started", 0).get()


def test_a_producer_that_only_names_tasks_is_believed_until_a_node_can_say(apps: Installation) -> None:
    assert apps.depot
    app = Celery("depot", broker=apps.environ["TEST_BROKER"], set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": apps.prefix + "."}
    app.conf.task_default_queue = "depot"
    client, work = Coordinator(app), "tests.harness.apps.depot.work"
    early = client.submit("k", app.signature(work, args=("early",)))
    typo = client.submit("typo", app.signature("depot.typo"))
    node = playing(apps.depot, "depot")
    late = client.submit("k", app.signature(work, args=("late",)))
    with pytest.raises(InvalidJob, match="nor a living node"):
        client.submit("k", app.signature("depot.other"))
    assert node.order() == [early.id, late.id]
    client.cancel(typo.id)
    app.close()
