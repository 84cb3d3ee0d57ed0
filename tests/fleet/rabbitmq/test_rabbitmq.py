"""On RabbitMQ as on Redis: jobs, requests, and nothing that a node leaves behind."""

import json
from contextlib import suppress
from typing import Any

import pytest
from kombu.entity import Queue
from kombu.messaging import Producer

from coordinator import UnknownJob
from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.broker

REQUESTS = "shop.refresh"


def publish(fleet: Fleet, body: Any, **options: Any) -> None:
    """As a program that has kombu; the queue need not be there yet."""
    with fleet.shop.app.connection_for_write() as connection:
        queue = Queue(REQUESTS, exchange="", routing_key=REQUESTS)
        Producer(connection.channel()).publish(body, routing_key=REQUESTS, declare=[queue], **options)


def _known(fleet: Fleet, *ids: str) -> bool:
    with suppress(UnknownJob):
        return all(fleet.coordinator.job(one) for one in ids)
    return False


def test_jobs_wake_two_nodes_which_have_no_queue_of_their_own(fleet: Fleet, rabbitmq: Broker) -> None:
    nodes = [fleet.worker(name, 1) for name in ("one", "two")]
    submit, shop = fleet.coordinator.submit, fleet.shop
    jobs = [submit("k" if number < 3 else f"k{number}", shop.work.s(str(number), 0.3)).id for number in range(6)]
    plain = shop.add.delay(1, 2)
    found = [fleet.coordinator.wait(one, 60) for one in jobs]
    assert [(job.state, job.result) for job in found] == [("succeeded", str(number)) for number in range(6)]
    assert [stamp.name for stamp in fleet.stamps(what="begin") if stamp.name in "012"] == ["0", "1", "2"]
    assert {job.node for job in found} == {node.name for node in nodes}
    assert plain.get(timeout=60) == 3
    for node in nodes:
        assert "Task coordinator.run[" in node.log.read_text()
    assert not {name for name in rabbitmq.queues() if name.startswith("coordinator.")}


def test_requests_that_were_sent_before_any_node_came_are_done_and_rubbish_is_put_aside(fleet: Fleet) -> None:
    publish(fleet, {"name": "early", "id": "r1"}, serializer="json")
    fleet.shop.app.send_task(REQUESTS, kwargs={"name": "task"}, task_id="r2")
    for rubbish in (b"no JSON", b"\xff\x00", b'{"nobody": "knows"}', b"x" * 20_000):
        publish(fleet, rubbish, content_type="application/json", content_encoding="binary")
    publish(fleet, {"name": "pickled"}, serializer="yaml")
    worker = fleet.worker("one")
    wait_until(lambda: {"early:*", "task:*"} <= {stamp.name for stamp in fleet.stamps()}, 60, fleet.logs)
    assert [fleet.coordinator.wait(one, 60).state for one in ("r1", "r2")] == ["succeeded"] * 2
    letters: list[dict[str, Any]] = []
    with fleet.shop.app.connection_for_read() as connection:
        channel = connection.channel()

        def all_there() -> bool:
            while message := channel.basic_get(f"{REQUESTS}.unreadable", no_ack=True):
                letters.append(json.loads(message.body))
            return len(letters) == 5

        wait_until(all_there, 60, fleet.logs)
        assert "Traceback" not in worker.log.read_text()
        worker.end()
        wait_until(lambda: channel.queue_declare(REQUESTS, passive=True).consumer_count == 0)
        assert channel.queue_declare(REQUESTS, passive=True).message_count == 0, "none goes back: each was acknowledged"
    assert {letter["node"] for letter in letters} == {worker.name}
    assert [letter["original"] for letter in letters][:3] == ["no JSON", "/wA=", '{"nobody": "knows"}']
    assert letters[3]["size"] == 20_000
    assert "application/x-yaml" in letters[4]["reason"]


def test_what_a_killed_node_had_received_is_done_by_another_one(fleet: Fleet) -> None:
    coordinator, first = fleet.coordinator, fleet.worker("first")
    coordinator.pause("inbox/a", why="the requests are to be seen")
    publish(fleet, {"name": "a", "id": "before"}, serializer="json")
    wait_until(lambda: coordinator.lane("inbox/a").length == 1, 60)
    stop(first.maintenance())  # the broker goes on to send it messages
    for number in range(3):
        publish(fleet, {"name": "a", "id": f"r{number}"}, serializer="json")
    assert coordinator.job("before").state == "waiting"
    first.end()
    fleet.worker("second")
    coordinator.resume("inbox/a")
    wait_until(lambda: _known(fleet, "r0", "r1", "r2"), 60, fleet.logs)
    assert {coordinator.wait(f"r{number}", 60).state for number in range(3)} == {"succeeded"}


def test_a_node_that_is_gone_leaves_no_queue(fleet: Fleet, rabbitmq: Broker) -> None:
    worker = fleet.worker("one", 1)
    job = fleet.coordinator.submit("k", fleet.shop.add.s(1, 2))
    assert fleet.coordinator.wait(job.id, 60).result == 3
    worker.process.terminate()
    worker.process.wait(60)
    wait_until(
        lambda: not {name for name in rabbitmq.queues() if "one@test" in name}, 60, lambda: str(rabbitmq.queues())
    )
