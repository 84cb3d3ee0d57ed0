"""A submit, and the call of a keyed task, that wait for the commit of Django's transaction."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.django.task import DjangoTask
from django.db import connection, transaction

from coordinator import Coordinator, InvalidJob
from tests.harness import djangos
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.usefixtures("node")  # it has the task
SHIP = {"task": "shop.work", "args": [1]}


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    djangos.set_up()
    yield
    connection.close()


def jobs(coordinator: Coordinator) -> list[str]:
    return list(coordinator.lane("order").jobs)


def test_a_job_is_submitted_when_the_transaction_commits(coordinator: Coordinator) -> None:
    with transaction.atomic():
        first = coordinator.submit_on_commit("order", SHIP)
        assert jobs(coordinator) == []
    assert jobs(coordinator) == [first]
    second = coordinator.submit_on_commit("order", SHIP)
    assert jobs(coordinator) == [first, second], "outside a transaction it is submitted at once"


def test_without_a_session_and_django_the_way_out_is_named(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(_: str) -> None:
        raise ModuleNotFoundError("No module named 'django'", name="django")

    monkeypatch.setattr("coordinator.core.client.on_commit.import_module", lacks)
    with pytest.raises(InvalidJob, match="session="):
        coordinator.submit_on_commit("order", SHIP)


def test_nothing_is_submitted_where_the_transaction_or_a_savepoint_is_rolled_back(coordinator: Coordinator) -> None:
    with transaction.atomic():
        coordinator.submit_on_commit("order", SHIP)
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = coordinator.submit_on_commit("order", SHIP)
        with transaction.atomic():
            coordinator.submit_on_commit("order", SHIP)
            transaction.set_rollback(True)
    assert jobs(coordinator) == [kept]


def test_a_keyed_django_task_goes_through_its_lane_after_the_commit(redis_server: RedisServer, prefix: str) -> None:
    app: Any = Celery("shop", broker="memory://", task_cls=DjangoTask, set_as_current=False)
    coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix, timeout=10)

    @app.task(name="shop.ship", shared=False, coordinate={"key": "{key}"})
    def ship(key: str) -> None:
        """Ship it."""

    with transaction.atomic():
        ship.delay_on_commit("order")
        ship.apply_async_on_commit(("order",), task_id="mine")
        assert jobs(coordinator) == []
    assert coordinator.lane("order").length == 2
    assert coordinator.job("mine").task == "shop.ship"
    coordinator.store.close()
    app.close()
