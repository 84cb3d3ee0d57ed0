"""A job goes on only in lanes that it holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Task

from coordinator import Coordinator

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def app() -> Iterator[Any]:
    app: Any = Celery("shop", broker=NOWHERE, set_as_current=False)
    Coordinator(app, url=NOWHERE)
    yield app
    app.close()


@pytest.fixture
def ship(app: Any) -> Any:
    @app.task(name="shop.ship", shared=False, bind=True, coordinate={"key": ["order/{order_id}", "pool/{pool}"]})
    def ship(self: Task, order_id: Any, how: str = "", pool: int = 0, then: Any = None) -> str:
        if not self.request.retries and how == "retry":
            raise self.retry(args=(then, how, pool), countdown=0)
        if then is not None and how == "replace":
            return str(self.replace(self.s(then, how, pool + 1)))
        return f"{order_id} {how}"

    return ship


@pytest.mark.parametrize(
    ("then", "said"), [(43, "its new arguments make the key 'order/43'"), (None, "no key can be made of")]
)
def test_a_retry_whose_arguments_make_another_key_is_refused_by_name(
    ship: Any, coordinator_jobs: Callable[[Coordinator], Any], then: Any, said: str
) -> None:
    jobs = coordinator_jobs(ship.app.coordinator)
    ship.delay(42, "retry", then=then)
    (job,) = jobs.submitted
    message = (job.error or {})["message"]
    assert (job.state, job.attempt) == ("failed", 1)
    assert message.startswith("shop.ship: self.retry: ")
    assert said in message
    assert "holds only the key 'order/42', the key 'pool/0': call the task with them instead" in message


def test_a_retry_goes_on_within_its_own_lanes_and_in_those_that_its_submit_named(
    ship: Any, coordinator_jobs: Callable[[Coordinator], Any]
) -> None:
    jobs = coordinator_jobs(ship.app.coordinator)
    ship.delay(42, "retry", then="42")
    ship.app.coordinator.submit("yard", ship.s(42, "retry", then=43))
    assert [(job.state, job.result) for job in jobs.submitted] == [("succeeded", "42 retry"), ("succeeded", "43 retry")]


def test_a_replacement_with_another_key_goes_through_the_lane_of_that(
    ship: Any, coordinator_jobs: Callable[[Coordinator], Any]
) -> None:
    ship.app.conf.result_backend = "cache+memory://"
    jobs = coordinator_jobs(ship.app.coordinator)
    with ship.app.coordinator.lock("order/43"):
        ship.delay(42, "replace", then=43)
        assert [job.state for job in jobs.submitted] == ["parked", "waiting"]
    assert [job.keys[0] for job in jobs.submitted if job.state == "succeeded"] == ["order/42", "order/43"]
