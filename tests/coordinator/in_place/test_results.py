"""How much of a result is kept: none where nobody wants it, and none that is too long."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.result import AsyncResult

from coordinator import Coordinator, Job
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("scale", broker=f"redis://127.0.0.1:{free_port()}/0", backend="cache+memory://", set_as_current=False)
coordinator = Coordinator(app, max_payload=2048)
called: list[str] = []


@app.task(name="scale.long", shared=False)
def long(length: int) -> str:
    called.append("long")
    return "x" * length


@app.task(name="scale.quiet", shared=False, ignore_result=True)
def quiet(length: int) -> str:
    return "x" * length


@app.task(name="scale.measure", shared=False)
def measure(text: str) -> int:
    called.append(f"measure {len(text)}")
    return len(text)


@app.task(name="scale.two", shared=False)
def two(length: int) -> list[AsyncResult]:
    return [long.delay(length), long.delay(length)]


@pytest.fixture(autouse=True)
def in_place(coordinator_jobs: Callable[[Coordinator], InPlace]) -> None:
    coordinator_jobs(coordinator)
    called.clear()


def ran(signature: Any, **options: Any) -> Job:
    return coordinator.job(coordinator.submit("k", signature, **options).job_id)


def test_a_result_that_is_too_long_ends_the_job_without_another_attempt() -> None:
    job = ran(long.s(3000), max_attempts=5)
    assert (job.state, job.attempt, job.result) == ("failed", 1, None)
    assert job.error
    assert job.error["message"] == "its result has 3002 bytes; at most 2048 (setting max_payload)"
    assert ran(long.s(2000)).state == "succeeded"


def test_the_result_of_a_step_has_the_same_bound() -> None:
    assert ran(chain(long.s(3000), measure.s())).state == "failed"
    assert ran(chain(long.s(1000), measure.s())).result == 1000


def test_the_results_of_sub_tasks_have_it_together() -> None:
    job = ran(two.s(1500))
    assert job.state == "failed"
    assert job.error
    assert "its sub-results have 3008 bytes; at most 2048" in job.error["message"]
    assert ran(group(long.s(3), long.s(4))).result == ["xxx", "xxxx"]


@pytest.mark.parametrize("signature", [quiet.s(3000), long.s(3000).set(ignore_result=True)], ids=str)
def test_a_result_that_nobody_wants_is_not_kept(signature: Any) -> None:
    job = ran(signature)
    assert (job.state, job.result) == ("succeeded", None)


def test_what_a_next_step_or_a_link_needs_is_kept() -> None:
    assert ran(chain(quiet.s(7), measure.s())).result == 7
    assert ran(quiet.s(9).set(link=measure.s())).state == "succeeded"
    assert called == ["measure 7", "measure 9"]
