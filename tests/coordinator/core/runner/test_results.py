"""What is stored of a job's end: together or one by one, it is what Celery would store."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from coordinator.core.jobs.record import Job
from coordinator.core.runner.results import JobEnd, send, send_many
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery itself

VARYING = {"date_done", "task_id"}


@pytest.fixture(params=[False, True], ids=["usual", "extended"])
def app(request: pytest.FixtureRequest, redis_server: RedisServer, prefix: str) -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", backend=redis_server.url(2), set_as_current=False)
    app.conf.update(result_extended=request.param, result_backend_transport_options={"global_keyprefix": f"{prefix}."})
    yield app
    app.backend.client.close()
    app.close()


def end_of(job_id: str, state: str, value: object = None) -> JobEnd:
    job = Job(
        id=job_id, keys=("a",), state=state, task="shop.add", args=(1, 2), kwargs={"x": 3}, attempt=1, losses=0,
        node="one@test", fence=1, submitted=None, taken=None, started=None, ended=None, result=value, error=None,
        progress=None,
    )  # fmt: skip
    return JobEnd(job, {}, ValueError("no") if state == "failed" else None, "trace" if state == "failed" else "")


def kept(app: Celery, job_id: str) -> dict[str, Any]:
    key = app.backend.get_key_for_task(job_id)
    found: dict[str, Any] = json.loads(app.backend.client.get(key))
    assert found["task_id"] == job_id
    return {name: value for name, value in found.items() if name not in VARYING} | {"ttl": app.backend.client.ttl(key)}


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired", "rolled_back"])
def test_results_that_are_stored_together_are_as_celery_stores_each(app: Celery, state: str) -> None:
    value = {"answer": [42, "é", None]} if state == "succeeded" else None
    send(app, end_of("alone", state, value))
    assert send_many(app, [end_of(f"many{number}", state, value) for number in range(3)]) == {"many0", "many1", "many2"}
    assert [kept(app, f"many{number}") for number in range(3)] == [kept(app, "alone")] * 3


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_those_whose_submits_coalesced_into_a_job_have_its_result_too(app: Celery, state: str) -> None:
    end = end_of("alone", state, 42 if state == "succeeded" else None)._replace(others=("first", "second"))
    send(app, end)
    assert [kept(app, other) for other in ("first", "second")] == [kept(app, "alone")] * 2
    assert send_many(app, [end._replace(others=("third",)), end_of("plain", state, end.job.result)]) == {
        "alone",
        "plain",
    }
    assert [kept(app, other) for other in ("third", "plain")] == [kept(app, "alone")] * 2


def test_a_result_that_cannot_be_stored_holds_up_no_other(app: Celery) -> None:
    ends = [end_of("good", "succeeded", 1), end_of("bad", "succeeded", object()), end_of("fine", "succeeded", 2)]
    assert send_many(app, ends) == {"good", "fine"}
    assert kept(app, "fine")["result"] == 2


def test_results_that_nobody_wants_are_told_and_not_stored(app: Celery) -> None:
    end = end_of("ignored", "succeeded", 1)
    assert send_many(app, [end._replace(spec={"ignore_result": True})]) == {"ignored"}
    assert app.backend.client.get(app.backend.get_key_for_task("ignored")) is None


def test_where_the_backend_is_away_nothing_is_told(app: Celery) -> None:
    app.backend.client.connection_pool.disconnect()
    app.backend.client.connection_pool.connection_kwargs.update(port=1, retry=None)
    assert send_many(app, [end_of("lost", "succeeded", 1)]) == set()
