"""Inboxes of real workers: under load, killed, cut off; nothing on the queue is ever a worker's business."""

import json
import os
from contextlib import suppress
from typing import Any

import pytest

from coordinator import UnknownJob
from coordinator.inbox.deaths import MOST
from coordinator.inbox.inbox import Inbox
from tests.coordinator.inbox.senders import (
    QUEUE,
    broker,
    key,
    our_app,
    plain,
)
from tests.harness.fleet import ROOT, Fleet, Worker
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until
from tests.harness.warm import python

# The maintenance process of a node, as far as it matters here.
DYING = """
import os
from coordinator.inbox import queue
from coordinator.inbox.inbox import Inbox
from tests.harness.apps import shop

def handle(request):
    if request.name == "deadly":
        os._exit(9)
    shop.take_in(request)

queue.LEASE = 0.5
inbox = Inbox(shop.app, "shop.refresh", shop.Request, handle, "one", lambda: shop.coordinator.store)
while True:
    inbox.step()
"""


def runs(fleet: Fleet) -> set[str]:
    return {stamp.name for stamp in fleet.stamps(what="begin")}


def is_known(fleet: Fleet, job_id: str) -> bool:
    with suppress(UnknownJob):
        return bool(fleet.coordinator.job(job_id))
    return False


def dead_letters(fleet: Fleet) -> list[bytes | str]:
    if fleet.rabbitmq:
        return [message.body for message in fleet.rabbitmq.taken(fleet.shop.app, f"{QUEUE}.dead")]
    with broker(fleet) as client:
        found = client.lrange(key(fleet, ".dead"), 0, -1)
        client.delete(key(fleet, ".dead"))
    return list(found)


def processes(worker: Worker) -> set[int]:
    return {worker.pid, worker.supervisor().pid, worker.maintenance().pid, *(child.pid for child in worker.children())}


@pytest.mark.broker
def test_a_request_that_ends_each_process_is_put_aside_and_those_beside_it_are_done(fleet: Fleet) -> None:
    for name in ("deadly", "good"):
        our_app(fleet, {"name": name})
    for _ in range(MOST + 1):
        assert python(["-c", DYING], ROOT, os.environ | fleet.environ).returncode == 9
    shop, letters_seen = fleet.shop, list[bytes | str]()
    inbox: Inbox[Any] = Inbox(shop.app, QUEUE, shop.Request, shop.take_in, "one", lambda: shop.coordinator.store)

    def refused() -> bool:
        inbox.step()
        letters_seen.extend(dead_letters(fleet))
        return bool(letters_seen)

    wait_until(lambda: refused() and fleet.coordinator.lane("inbox/good").length)
    inbox._requests.close()
    (letter,) = map(json.loads, letters_seen)
    assert "died while it handled the message, 4 times in a row" in letter["reason"]
    assert "deadly" in letter["original"]
    assert fleet.messages() == 0


def test_work_goes_on_soon_after_every_connection_to_the_broker_swallowed_everything(
    fleet: Fleet, proxy: Proxy
) -> None:
    worker = fleet.worker(TEST_BROKER=proxy.url(1))
    plain(fleet, {"name": "before"})
    wait_until(lambda: "before:*" in runs(fleet))
    before = processes(worker)
    proxy.swallow()
    plain(fleet, {"name": "during", "id": "during"})
    connections = proxy.connections
    wait_until(lambda: proxy.connections > connections)
    proxy.heal()
    wait_until(lambda: "during:*" in runs(fleet), what=fleet.logs)
    assert processes(worker) == before
