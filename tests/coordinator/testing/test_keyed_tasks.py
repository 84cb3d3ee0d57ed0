"""In a user's own suite, the calls of keyed tasks are jobs that run at once, and no broker is asked."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import celery.exceptions
import pytest
from celery import Celery, chain

from coordinator import Coordinator, Locked, current_job

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def app() -> Iterator[Any]:
    app: Any = Celery("shop", broker=NOWHERE, backend=NOWHERE, set_as_current=False)
    Coordinator(app, url=NOWHERE)
    yield app
    app.close()


def test_get_lets_time_pass_until_a_retry_has_ended(app: Any, coordinator_jobs: Callable[[Coordinator], Any]) -> None:
    @app.task(name="shop.ship", shared=False, bind=True, coordinate={"key": "order/{order}"})
    def ship(self: Any, order: int) -> str:
        if not self.request.retries:
            raise self.retry(countdown=300)
        return f"{order} at the second attempt"

    coordinator_jobs(app.coordinator)
    assert ship.delay(5).get() == ship.delay(5).get(timeout=600) == "5 at the second attempt"
    with pytest.raises(celery.exceptions.TimeoutError):
        ship.delay(5).get(timeout=100)


def test_a_call_that_is_to_start_later_does_so_when_its_time_has_passed(
    app: Any, coordinator_jobs: Callable[[Coordinator], Any]
) -> None:
    @app.task(name="shop.ship", shared=False, coordinate={"key": "order/{order}"})
    def ship(order: int) -> None:
        shipped.append(order)

    shipped: list[int] = []
    jobs = coordinator_jobs(app.coordinator)
    ship.apply_async((1,), countdown=600)
    ship.apply_async((2,), eta=datetime.now(UTC) + timedelta(seconds=1200))
    app.coordinator.submit("order/3", ship.s(3), not_before=datetime.now(UTC) + timedelta(seconds=900))
    with app.coordinator.lock("order/4"):
        ship.apply_async((4,), expires=300)
        jobs.advance(590)
        assert (shipped, jobs.submitted[-1].state) == ([], "expired")
    jobs.advance(11)
    assert shipped == [1]
    jobs.advance(600)
    assert shipped == [1, 3, 2], "in the order of their instants"
    assert ship.apply_async((5,), countdown=60).get(timeout=61) is None


def test_calls_run_at_once_in_their_lanes(app: Any, coordinator_jobs: Callable[[Coordinator], Any]) -> None:
    @app.task(name="shop.ship", shared=False, coordinate={"key": "order/{order}", "when_busy": "skip"})
    def ship(order: int) -> str:
        job = current_job()
        return f"{order} as {job.key if job else None}"

    @app.task(name="shop.strict", shared=False, coordinate={"key": "k", "when_busy": "skip", "on_skip": "raise"})
    def strict() -> None:
        """Never waits."""

    @app.task(name="shop.note", shared=False)
    def note(text: str) -> None:
        noted.append(text)

    noted: list[str] = []
    jobs = coordinator_jobs(app.coordinator)
    ship.delay(5)
    ship.apply_async((6,), link=note.s())
    chain(ship.s(7), note.s()).apply_async()
    assert [(job.key, job.result) for job in jobs.submitted] == [(f"order/{n}", f"{n} as order/{n}") for n in (5, 6, 7)]
    assert noted == ["6 as order/6", "7 as order/7"]
    with app.coordinator.lock("k"), pytest.raises(Locked):
        strict.delay()
    with app.coordinator.lock("order/8"):
        ship.delay(8)
    assert len(jobs.submitted) == 3
