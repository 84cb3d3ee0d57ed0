"""A web application (FastAPI): a request puts a job in line, or waits for its result, and the loop goes on meanwhile.

A thousand requests may wait at the same time: all waits of the process share one connection to Redis.

Run it: python examples/web.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from celery import Celery
from fastapi import FastAPI, HTTPException
from onemachine import Machine

from coordinator import Coordinator, UnknownJob, WaitTimeout, aio

app = Celery("web")
coordinator = Coordinator(app)
jobs = aio.Coordinator(coordinator)


@app.task
def ship(order: int) -> str:
    return f"order {order} is shipped"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await jobs.aclose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders/{order}", status_code=202)
async def put_in_line(order: int) -> dict[str, str]:
    submission = await jobs.submit(f"order/{order}", ship.s(order))
    return {"job": submission.id, "outcome": submission.outcome}


@web.get("/jobs/{job_id}")
async def result(job_id: str, timeout: float = 10.0) -> dict[str, object]:
    """Wait for the job's end: 404 for an unknown id, 504 if it has not ended within `timeout` seconds."""
    try:
        job = await jobs.wait(job_id, timeout)
    except UnknownJob as error:
        raise HTTPException(404, str(error)) from error
    except WaitTimeout as error:
        raise HTTPException(504, str(error)) from error
    return {"state": job.state, "result": job.result}


async def visit(machine: Machine) -> None:
    """Request twenty orders at the same time, as twenty browsers would."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop") as browser:

        async def order(number: int) -> str:
            made = (await browser.post(f"/orders/{number}")).json()
            return str((await browser.get(f"/jobs/{made['job']}")).json()["result"])

        results = await asyncio.gather(*(order(number) for number in range(20)))
        for line in (results[0], results[-1]):
            machine.say(line)
        machine.say(f"{len(set(results))} orders are shipped")
        machine.say(f"a job that nobody knows: {(await browser.get('/jobs/nobody')).status_code}")
    await jobs.aclose()


def main() -> None:
    with Machine() as machine:
        machine.workers("web", coordinator, "one")
        asyncio.run(visit(machine))


if __name__ == "__main__":
    main()
