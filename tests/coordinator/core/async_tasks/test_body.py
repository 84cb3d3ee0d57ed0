"""One run of a body in a loop that the test has."""

import asyncio
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from coordinator.core.async_tasks.body import Body


@pytest.fixture
def task() -> Any:
    app: Any = Celery("yard", broker="memory://", set_as_current=False)

    def work() -> None: ...

    return app.task(name="yard.work", shared=False)(work)


def test_an_interruption_that_comes_before_the_first_step_is_raised_and_the_body_is_over(task: Any) -> None:
    """Such as a soft time limit at the instant at which a thread has handed the body to its loop."""
    did = []

    async def steps() -> None:
        did.append("begun")

    loop = asyncio.new_event_loop()
    body = Body(task, task.request, steps(), loop)
    body.begin()
    body.interrupt(SoftTimeLimitExceeded())
    assert body.runs
    loop.run_until_complete(body.runs)
    loop.close()
    assert (body.is_over, type(body.error), did) == (True, SoftTimeLimitExceeded, [])
