"""An app of async tasks: one that its base class runs, and one that wants a pool for asyncio."""

import asyncio
import os

from celery import Celery, Task

from coordinator import Coordinator, aio, current_job

app = Celery("awaiting", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
if os.environ["TEST_BROKER"].startswith("redis"):
    app.conf.broker_transport_options = {"global_keyprefix": os.environ["TEST_PREFIX"] + "."}
app.conf.worker_hijack_root_logger = False
coordinator = Coordinator(app)


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
async def by_pool(name: str) -> list[object]:
    return await _look(name)


@app.task
async def at_the_end(name: str) -> str:
    """Submit once the worker was told to end."""
    while coordinator._stopped_in is None:
        await asyncio.sleep(0.02)
    async with aio.Coordinator(coordinator) as jobs:
        return (await jobs.submit(name, by_pool.s(name))).outcome
