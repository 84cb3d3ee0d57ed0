"""Task events of jobs: sent where somebody asked for them, many together, and as Celery's own."""

import threading
import time
from contextlib import suppress
from typing import Any, Self

import pytest
from celery import Celery

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

FLOOD = 5000


class Ear:
    """What is said on the event exchange: when each message was sent, and the task events of each job."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self.messages: list[float] = []
        self.heard: dict[str, list[str]] = {}
        self._listens, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection)
            with connection.Consumer(queues=[receiver.queue], callbacks=[self._hear], no_ack=True):
                self._listens.set()
                while not self._over.is_set():
                    with suppress(TimeoutError):
                        connection.drain_events(timeout=0.2)

    def _hear(self, body: Any, _: object) -> None:
        events = [one for one in (body if isinstance(body, list) else [body]) if one["type"].startswith("task-")]
        if events:
            self.messages.append(max(one["timestamp"] for one in events))
        for one in events:
            self.heard.setdefault(one["uuid"], []).append(one["type"])

    def of(self, job_id: str) -> list[str]:
        return self.heard.get(job_id, [])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run_one(fleet: Fleet) -> str:
    job_id = fleet.coordinator.submit("a", fleet.shop.add.s(1, 2)).id
    assert fleet.coordinator.wait(job_id, 20).state == "succeeded"
    return job_id


def most_in_a_second(moments: list[float]) -> int:
    return max(sum(moment <= other < moment + 1.0 for other in moments) for moment in moments)


def test_a_worker_sends_the_events_of_jobs_while_somebody_asked_for_them(fleet: Fleet) -> None:
    fleet.worker()
    control = fleet.shop.app.control
    with Ear(fleet.shop.app) as ear:
        unasked = run_one(fleet)
        time.sleep(1.0)
        assert ear.heard == {}
        assert control.enable_events(reply=True)
        time.sleep(1.0)
        asked = run_one(fleet)
        wait_until(lambda: len(ear.of(asked)) == 3, 5, lambda: str(ear.heard))
        assert ear.of(asked) == ["task-received", "task-started", "task-succeeded"]
        assert control.disable_events(reply=True)
        time.sleep(1.0)
        again = run_one(fleet)
        time.sleep(1.0)
    assert set(ear.heard) == {asked}, f"not {unasked}, not {again}"


@pytest.mark.timeout(180)
def test_the_events_of_a_flood_come_in_few_messages_and_all_of_them(fleet: Fleet) -> None:
    worker = fleet.worker("one", 2, "-E")
    run_one(fleet)
    with Ear(fleet.shop.app) as ear:
        told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(FLOOD))
        wait_until(lambda: all(len(ear.of(one.id)) == 3 for one in told), 120, lambda: f"{len(ear.heard)} heard")
        assert most_in_a_second(ear.messages) <= 20, "ten a second and process"
        threads = [child.num_threads() for child in worker.children()]
        told = fleet.coordinator.submit_many((f"k{number}", fleet.shop.add.s(1, number)) for number in range(200))
        wait_until(lambda: all(len(ear.of(one.id)) == 3 for one in told), 30, lambda: f"{len(ear.heard)} heard")
        assert [child.num_threads() for child in worker.children()] <= [most + 1 for most in threads]


def test_lone_jobs_are_not_held_up_by_their_events(fleet: Fleet) -> None:
    fleet.worker("one", 1)
    run_one(fleet)

    def twenty() -> float:
        began = time.monotonic()
        for _ in range(20):
            run_one(fleet)
        return time.monotonic() - began

    silent = twenty()
    assert fleet.shop.app.control.enable_events(reply=True)
    time.sleep(1.0)
    assert twenty() < 2 * silent + 2.0, "each would wait 0.2 s for the pause between two messages"
