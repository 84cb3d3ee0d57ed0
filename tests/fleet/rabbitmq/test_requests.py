"""A request queue that an operator or a sender has declared otherwise, and messages that are none."""

from typing import Any

import pytest
from kombu.entity import Queue

from coordinator.inbox.inbox import Inbox
from tests.coordinator.inbox.senders import QUEUE
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.broker


def inbox_of(fleet: Fleet, given: list[str]) -> Inbox[Any]:
    shop = fleet.shop
    store = lambda: shop.coordinator.store  # noqa: E731
    return Inbox(shop.app, QUEUE, shop.Request, lambda found: given.append(found.name), "one", store)


@pytest.mark.parametrize("arguments", [{"x-max-priority": 9}, {"x-queue-type": "quorum"}])
def test_one_that_has_priorities_or_is_a_quorum_queue_stays_so_and_senders_find_it(
    fleet: Fleet, arguments: dict[str, Any]
) -> None:
    app, given = fleet.shop.app, list[str]()
    with app.connection_for_write() as connection:
        Queue(QUEUE, exchange="", routing_key=QUEUE, queue_arguments=arguments)(connection.channel()).declare()
    for name, priority in (("usual", 1), ("urgent", 9)):
        app.send_task(QUEUE, kwargs={"name": name}, priority=priority, ignore_result=True)
    inbox = inbox_of(fleet, given)
    wait_until(lambda: inbox.step() >= 0 and len(given) == 2)
    inbox._requests.close()
    assert given == (["urgent", "usual"] if "x-max-priority" in arguments else ["usual", "urgent"])


def test_messages_that_are_no_tasks_end_nothing_in_a_worker_whose_queues_have_priorities(fleet: Fleet) -> None:
    fleet.environ["TEST_PRIORITIES"] = "9"
    worker, app = fleet.worker("one", 1), fleet.shop.app
    queues = ("celery", f"coordinator.node.{worker.name}")
    with app.connection_for_write() as connection, connection.Producer() as producer:
        for queue in queues:
            for body, kind in (
                (b"no JSON", "application/json"),
                (b"\x80", "application/x-python-serialize"),
                (b"{}", ""),
            ):
                producer.publish(
                    body,
                    exchange="",
                    routing_key=queue,
                    content_type=kind or "application/json",
                    content_encoding="binary",
                )
            app.send_task("nobody.has.it", exchange="", routing_key=queue, producer=producer)
    job = fleet.coordinator.submit("k", fleet.shop.add.s(1, 2))
    assert fleet.coordinator.wait(job.id, 60).result == 3
    assert fleet.shop.add.delay(3, 4).get(timeout=60) == 7
    wait_until(lambda: fleet.messages() == 0, what=fleet.logs)
    assert worker.process.poll() is None
    assert "Connection to broker lost" not in worker.log.read_text()
