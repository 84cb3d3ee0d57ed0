"""Inboxes of real workers: under load, killed, cut off; nothing on the queue is ever a worker's business."""

import json
import os
from contextlib import suppress
from typing import Any

import psutil
import pytest

from coordinator import UnknownJob
from coordinator.warden.inbox.deaths import MOST
from coordinator.warden.inbox.inbox import Inbox
from tests.coordinator.warden.inbox.senders import (
    QUEUE,
    RUBBISH,
    SENDERS,
    WITH_KOMBU,
    broker,
    key,
    letters,
    our_app,
    plain,
    push,
)
from tests.harness.fleet import ROOT, Fleet, Worker
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_for_count, wait_until
from tests.harness.warm import python

# The errands of a node, as far as they matter here.
DYING = """
import os
from coordinator.warden.inbox import queue
from coordinator.warden.inbox.inbox import Inbox
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
    return {worker.pid, worker.warden().pid, worker.errands().pid, *(child.pid for child in worker.children())}


def test_no_message_on_the_queue_is_noticed_by_the_worker_or_its_other_queues(fleet: Fleet) -> None:
    worker = fleet.worker()
    before = processes(worker)
    ordinary = []
    for number, (message, _) in enumerate(RUBBISH.values()):
        push(fleet, message)
        ordinary.append(fleet.shop.add.delay(number, 1))
        fleet.coordinator.submit("orders", fleet.shop.work.s(f"order {number}"))
    for number, send in enumerate(SENDERS):
        send(fleet, {"name": f"good {number}", "id": f"id {number}"})
    assert [result.get(timeout=20) for result in ordinary] == [number + 1 for number in range(len(RUBBISH))]
    wait_until(lambda: letters(fleet) == len(RUBBISH))
    for number in range(len(SENDERS)):
        wait_until(lambda number=number: f"good {number}:*" in runs(fleet))  # type: ignore[misc]
        assert fleet.coordinator.wait(f"id {number}", 20).state == "succeeded"
    wait_for_count(lambda: len(fleet.stamps(what="end")), len(RUBBISH))
    assert processes(worker) == before
    assert "Traceback" not in worker.log.read_text()


def test_a_flood_of_rubbish_delays_neither_jobs_nor_requests_for_long(fleet: Fleet) -> None:
    worker = fleet.worker()
    before = processes(worker)
    with broker(fleet) as client:
        client.lpush(key(fleet), *["rubbish"] * 5_000)
    plain(fleet, {"name": "behind"})
    job = fleet.coordinator.submit("beside", fleet.shop.work.s("beside"))
    assert fleet.coordinator.wait(job.id, 20).state == "succeeded"
    with broker(fleet) as client:
        assert client.llen(key(fleet)), "much rubbish waits still"
        wait_for_count(lambda: -client.llen(key(fleet)), 0, 30)
    wait_until(lambda: "behind:*" in runs(fleet), 60)
    assert letters(fleet) == 1000, "the last ones are kept"
    assert processes(worker) == before
    assert worker.log.read_text().count("refused") == 10


@pytest.mark.broker
def test_any_number_of_requests_while_one_runs_make_one_more_run_that_does_all(fleet: Fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    busy = fleet.coordinator.submit("inbox/a", fleet.shop.work.s("busy", 4.0))
    wait_until(lambda: "busy" in runs(fleet))
    senders = WITH_KOMBU if fleet.rabbitmq else SENDERS
    for number in range(30):
        senders[number % len(senders)](fleet, {"name": "a", "pid": f"P{number % 3}", "id": f"r{number}"})
    wait_until(lambda: all(is_known(fleet, f"r{number}") for number in range(30)), 20, fleet.logs)
    assert fleet.coordinator.lane("inbox/a").length == 2
    ids = {fleet.coordinator.wait(f"r{number}", 20).id for number in range(30)}
    assert fleet.coordinator.job(busy.id).state == "succeeded"
    assert len(ids) == 1
    (name,) = runs(fleet) - {"busy"}
    assert sorted(name.removeprefix("a:").split(",")) == ["P0", "P1", "P2"]


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
    assert "ended, 4 times" in letter["reason"]
    assert "deadly" in letter["original"]
    assert fleet.messages() == 0


def test_what_a_killed_node_had_in_hand_is_done_by_another_one(fleet: Fleet) -> None:
    fleet.configure(node_ttl=1.5, heartbeat=0.3, lock_ttl=2)
    killed = fleet.worker("killed")
    errands = killed.errands()
    sent: list[str] = []

    def caught_with_something_received() -> bool:
        sent.extend(f"r{len(sent) + number}" for number in range(100))
        with broker(fleet) as client:
            client.lpush(key(fleet), *[json.dumps({"name": "a", "id": name}) for name in sent[-100:]])
            wait_until(lambda: client.llen(key(fleet)) < 100)
            errands.suspend()
            if client.exists(key(fleet, ".taken")):
                return True
            errands.resume()
            return False

    wait_until(caught_with_something_received)
    everything = [*killed.children(), killed.warden(), errands, psutil.Process(killed.pid)]
    for process in everything:
        process.kill()
    killed.process.wait()
    fleet.worker("heir")
    with broker(fleet) as client:
        wait_until(lambda: not client.exists(key(fleet), key(fleet, ".taken")), 10)
    for name in sent:
        assert fleet.coordinator.wait(name, 30).state == "succeeded"


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
    wait_until(lambda: proxy.connections > connections, 30)
    proxy.heal()
    wait_until(lambda: "during:*" in runs(fleet), 30, fleet.logs)
    assert processes(worker) == before
