"""Async tasks in users' suites: with the fixture, in plain tests and in async ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from coordinator import Conflict, Coordinator, aio
from coordinator.local.redis import free_port
from coordinator.testing.inline import InlineJobs

app: Any = Celery(
    "wharf", broker=f"redis://127.0.0.1:{free_port()}/0", backend="redis://127.0.0.1:1/0", set_as_current=False
)
coordinator = Coordinator(app)
lanes = aio.Coordinator(coordinator)


@pytest.fixture
def jobs(coordinator_jobs: Callable[[Coordinator], InlineJobs]) -> InlineJobs:
    return coordinator_jobs(coordinator)


@app.task(shared=False, coordinate={"key": "{key}"})
async def ship(key: str) -> list[Any]:
    job = aio.current_job()
    assert job
    await job.check()
    await job.progress(1, 1)
    if job.attempt == 1:
        raise Conflict("somebody was first")
    return [job.key, job.attempt]


@app.task(shared=False)
async def nest(key: str) -> Any:
    """Submit two jobs, by both ways, and hand on a third."""
    await lanes.submit(key, ship.s(key))
    await asyncio.to_thread(coordinator.submit, key, ship.s(key))
    return ship.delay(key)


def test_a_job_with_an_async_body_runs_at_submit(jobs: InlineJobs) -> None:
    assert ship.delay("a").get() == ["a", 2]
    assert coordinator.job(jobs.submitted[0].id).progress == (1, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_may_submit_others_and_hand_them_on(jobs: InlineJobs, is_async: bool) -> None:
    async def test() -> Any:
        return await lanes.get((await lanes.submit("n", nest.s("b"))).id)

    found = asyncio.run(test()) if is_async else coordinator.submit("n", nest.s("b")).get()
    assert found == [["b", 2]]
    assert [(job.key, job.state) for job in jobs.submitted] == [("n", "succeeded"), *[("b", "succeeded")] * 3]
