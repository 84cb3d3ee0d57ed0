"""An app of async tasks."""

import asyncio
import os
import threading
from typing import Any

from celery import Celery, Task
from celery.exceptions import SoftTimeLimitExceeded

from coordinator import Conflict, Coordinator, aio, current_job

app = Celery("awaiting", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
if os.environ["TEST_BROKER"].startswith("redis"):
    app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.worker_hijack_root_logger = False
coordinator = Coordinator(app)
jobs = aio.Coordinator(coordinator)


class Awaiting(Task):
    abstract = True

    def __call__(self, *args: object, **kwargs: object) -> object:
        return asyncio.run(self.run(*args, **kwargs))


async def _look(name: str) -> list[object]:
    await asyncio.sleep(0)
    job = current_job()
    return [name, job and job.key, job and job.attempt]


@app.task(base=Awaiting)
async def by_base(name: str) -> list[object]:
    return await _look(name)


@app.task
async def by_itself(name: str) -> list[object]:
    return await _look(name)


@app.task
async def at_the_end(name: str) -> str:
    """Submit once the worker was told to end."""
    while coordinator._stopped_in is None:
        await asyncio.sleep(0.02)
    async with aio.Coordinator(coordinator) as jobs:
        return (await jobs.submit(name, by_itself.s(name))).outcome


@app.task
async def reports() -> list[object]:
    """Ask and tell Redis about the job, and wait for another one, while the loop goes on."""
    job = aio.current_job()
    assert job
    await job.check()
    await job.progress(1, 2)
    other = await jobs.submit("other", by_itself.s("other"))
    return [job.key, job.attempt, await job.holds(), await jobs.get(other.id, 30)]


@app.task
async def clashes() -> int:
    job = current_job()
    assert job
    if job.attempt == 1:
        raise Conflict("somebody was first")
    return job.attempt


@app.task(bind=True)
async def again(self: Any) -> int:
    await asyncio.sleep(0)
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task
async def hands_on(name: str) -> Any:
    await asyncio.sleep(0)
    return by_itself.delay(name)


@app.task
async def cools() -> None:
    job = aio.current_job()
    assert job
    await job.cool_down(30)


@app.task
async def waits(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except SoftTimeLimitExceeded:
        await asyncio.sleep(0)
        return f"put away in {threading.current_thread().name}"
    return "waited"


@app.task
async def loop() -> int:
    return id(asyncio.get_running_loop())
