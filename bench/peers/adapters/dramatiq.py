"""dramatiq, two processes of one thread. They prefetch as many messages as those of Celery: else it would be two."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import body

dramatiq.set_broker(RedisBroker(url=f"{body.URL}/1"))

WORKER = ("dramatiq", "-p", "2", "-t", "1", __name__)
ENVIRON = {"dramatiq_queue_prefetch": "64"}
PORTION = 100


@dramatiq.actor
def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    for key, number in jobs:
        work.send(key, number)
