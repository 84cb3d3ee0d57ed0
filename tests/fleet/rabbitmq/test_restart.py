"""RabbitMQ dies under its fleet and comes back: work goes on, each job once and in order, and no node starts again."""

import time

import pytest

from coordinator.core.celery_patches.confirmed import confirmed
from tests.harness.fleet import Fleet, Worker
from tests.harness.rabbitmq import Broker
from tests.harness.waiting import wait_until, within

pytestmark = pytest.mark.broker

LANES, EACH = 4, 8
BACK = 40.0  # seconds on a busy machine; docs/failures.md says what it takes on a quiet one


def family(worker: Worker) -> set[int]:
    """The processes of a node."""
    return {worker.pid, worker.supervisor().pid, *(child.pid for child in worker.children())}


def ask(fleet: Fleet, first: int, seconds: float) -> list[str]:
    """Submit a load of jobs, none of which takes long to submit."""
    asked = []
    for number in range(first, first + LANES * EACH):
        with within(10):
            key = f"k{number % LANES}"
            asked.append(fleet.depot.coordinator.submit(key, fleet.depot.work.s(f"{key}:{number:03}", seconds)).id)
    return asked


def test_it_is_killed_while_idle_nodes_are_asked_for_work_and_again_under_load(fleet: Fleet, rabbitmq: Broker) -> None:
    fleet.configure(sweep=0.2)
    nodes = [fleet.worker(name, 2, app="depot") for name in ("one", "two")]
    before = [family(node) for node in nodes]
    with confirmed(fleet.depot.app) as producer:  # else a server that is killed now may not have it on its disk
        fleet.depot.late.apply_async(["late"], ignore_result=True, producer=producer)
    fleet.begun("late")

    rabbitmq.server.kill()
    asked = ask(fleet, 0, 0.2)
    assert {stamp.name for stamp in fleet.stamps()} == {"late"}, "no doorbell came through"
    rabbitmq.server.start()
    back = time.monotonic()
    fleet.begun(*(f"k{lane}:{lane:03}" for lane in range(LANES)))
    assert time.monotonic() - back < BACK
    rabbitmq.server.kill()
    asked += ask(fleet, LANES * EACH, 0.0)
    for one in asked:
        job = fleet.depot.coordinator.wait(one, 60)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    rabbitmq.server.start()
    wait_until(lambda: len(fleet.stamps("late", "begin")) > 1, 2 * BACK, fleet.logs)
    for _ in range(9):
        fleet.go("late")

    names = [stamp.name for stamp in fleet.stamps(what="begin") if stamp.name != "late"]
    assert sorted(names) == sorted(f"k{number % LANES}:{number:03}" for number in range(2 * LANES * EACH))
    for lane in range(LANES):
        own = [name for name in names if name.startswith(f"k{lane}:")]
        assert own == sorted(own)
    assert fleet.depot.add.delay(1, 2).get(timeout=60) == 3
    rabbitmq.server.alarm(True)
    with within(10):
        after = fleet.depot.coordinator.submit("after", fleet.depot.add.s(1, 2))
    rabbitmq.server.alarm(False)
    assert fleet.depot.coordinator.wait(after.id, 60).result == 3
    wait_until(lambda: rabbitmq.messages() == 0)
    assert [family(node) for node in nodes] == before
    assert "Trying again in 6.00" not in fleet.logs(), "Celery's own pauses grow to 30 s"
