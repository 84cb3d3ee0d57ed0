"""An app that calls its tasks eagerly has its jobs run in place, without Redis."""

import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from celery.app.task import Task

from coordinator import Coordinator, Locked, StoreUnavailable, current_job
from coordinator.local.redis import free_port


@pytest.fixture
def app() -> Iterator[Celery]:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    app = Celery("yard", broker=nowhere, set_as_current=False)
    app.conf.task_always_eager = True
    coordinator = Coordinator(app)

    def add(x: int, y: int) -> int:
        job = current_job()
        assert job
        assert job.key == "k"
        return x + y

    def fail(self: Task) -> None:
        assert self.request.is_eager
        raise ValueError("no")

    def nest() -> str:
        return coordinator.submit("k", app.tasks["yard.add"].s(1, 1)).outcome

    for function, bind in ((add, False), (fail, True), (nest, False)):
        app.task(function, name=f"yard.{function.__name__}", bind=bind, shared=False)
    yield app
    app.close()


def test_a_job_of_an_eager_app_runs_at_submit_and_needs_no_redis(app: Celery) -> None:
    coordinator: Coordinator = app.coordinator
    made = coordinator.submit("k", app.tasks["yard.add"].s(1, 2))
    assert (made.outcome, made.get(), coordinator.wait(made.job_id).state) == ("started", 3, "succeeded")
    assert coordinator.submit("k", app.tasks["yard.nest"].s()).get() == "queued"
    assert [job.job_id for job in coordinator.submit_many([("k", app.tasks["yard.add"].s(1, 2), {"job_id": "j"})])] == [
        "j"
    ]
    with coordinator.lock("k"), pytest.raises(Locked), coordinator.lock("k", wait=0):
        pass
    coordinator.pause("k")
    waits = coordinator.submit("k", app.tasks["yard.add"].s(1, 2))
    assert "paused" in " ".join(coordinator.why(waits.job_id))


def test_the_error_of_a_job_is_its_own_unless_eager_errors_propagate(app: Celery) -> None:
    coordinator: Coordinator = app.coordinator
    assert coordinator.job(coordinator.submit("k", app.tasks["yard.fail"].s()).job_id).state == "failed"
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no"):
        coordinator.submit("k", app.tasks["yard.fail"].s())


def test_a_submit_that_is_skipped_or_given_twice_has_no_error_to_propagate(app: Celery) -> None:
    coordinator: Coordinator = app.coordinator
    failed = coordinator.submit("k", app.tasks["yard.fail"].s()).job_id
    app.conf.task_eager_propagates = True
    with coordinator.lock("k"):
        assert coordinator.submit("k", app.tasks["yard.fail"].s(), when_busy="skip").outcome == "skipped"
    assert coordinator.submit("k", app.tasks["yard.fail"].s(), job_id=failed).outcome == "duplicate"


def test_what_is_no_longer_eager_goes_to_redis(app: Celery) -> None:
    app.conf.task_always_eager = False
    with pytest.raises(StoreUnavailable):
        app.coordinator.submit("k", app.tasks["yard.add"].s(1, 2))


def test_threads_take_turns_and_old_jobs_are_forgotten(app: Celery) -> None:
    coordinator: Coordinator = app.coordinator
    add = app.tasks["yard.add"]

    def submit() -> None:
        for _ in range(700):
            coordinator.submit("k", add.s(1, 2))

    first = coordinator.submit("k", add.s(1, 2))
    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = coordinator.counts()
    assert 1000 <= counts["succeeded"] == counts["created"] <= 2001
    with pytest.raises(KeyError):
        coordinator.job(first.job_id)
