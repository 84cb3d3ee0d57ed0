"""taskiq on lists, two worker processes, each with up to a hundred tasks at once, its default.

Its broker on streams acknowledges its messages and does nine tenths as many jobs.
"""

import asyncio

from taskiq_redis import ListQueueBroker

from bench.peers import body

broker = ListQueueBroker(f"{body.URL}/1")
loop = asyncio.new_event_loop()

WORKER = ("taskiq", "worker", f"{__name__}:broker", "--workers", "2", "--log-level", "WARNING")
PORTION = 100


@broker.task
async def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    loop.run_until_complete(side_by_side(jobs))


async def side_by_side(jobs: list[tuple[int, int]]) -> None:
    await asyncio.gather(*(work.kiq(key, number) for key, number in jobs))
