"""A thousand tasks of one loop submit and wait: how soon does the loop answer, beside threads that do the same?

The lag of the loop is the time of its turns, while a thousand waits begin, wait for a second, and end at one moment.
"""

import asyncio
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from celery import Celery

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator, aio
from coordinator.core.author import act_of

MANY, THREADS, BEGIN, IDLE = amount((1_000, 32, 1, 2), (5, 2, 0.1, 0.1))


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        app = Celery("bench", broker=url)
        task = app.signature("bench.nothing")
        host = Coordinator(app, url=url, prefix="awaited")
        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda n: host.submit(f"thread/{n}", task, if_unknown="wait"), range(MANY)))
        threads = MANY / (time.perf_counter() - began)
        tasks, begin, idle, end = asyncio.run(awaited(host, task))
        print(f"submits a second: {THREADS} threads {threads:,.0f}, {MANY} tasks {tasks:,.0f}")
        print(f"longest turn of the loop, ms: begin {begin:.1f}, wait {idle:.1f}, end {end:.1f}")
        host.close()


def end_all(url: str) -> None:
    """In a process of its own, since a thread would hold the interpreter lock that the loop needs."""
    host = Coordinator(url=url, prefix="awaited")
    host.store.step_many("job_cancel", [(lane.jobs[0], act_of(), "") for lane in host.lanes("task/", most=MANY)])


async def awaited(host: Coordinator, task: object) -> tuple[float, float, float, float]:
    gc.freeze()
    async with aio.Coordinator(host) as jobs:
        began = time.perf_counter()
        sent = await asyncio.gather(*(jobs.submit(f"task/{n}", task, if_unknown="wait") for n in range(MANY)))
        rate = MANY / (time.perf_counter() - began)
        longest = [0.0]

        async def look() -> None:
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0)
                longest[-1] = max(longest[-1], 1000 * (time.perf_counter() - before))

        looking = asyncio.create_task(look())
        waits = [asyncio.create_task(jobs.wait(one.id)) for one in sent]
        await asyncio.sleep(BEGIN)
        longest.append(0.0)
        await asyncio.sleep(IDLE)
        longest.append(0.0)
        ending = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.awaited", host.settings.url)
        await asyncio.gather(*waits, ending.wait())
        looking.cancel()
    begin, idle, end = longest
    return rate, begin, idle, end


if __name__ == "__main__":
    end_all(sys.argv[1]) if sys.argv[1:] else main()
