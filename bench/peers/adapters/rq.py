"""RQ, a pool of two SimpleWorkers: its notes on performance name them for short jobs, since they do not fork."""

import redis
import rq

from bench.peers import body

queue = rq.Queue(connection=redis.Redis.from_url(f"{body.URL}/1"))

WORKER = ("rq", "worker-pool", "-n", "2", "-w", "rq.worker.SimpleWorker", "-q", "-u", f"{body.URL}/1")
PORTION = 500


def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    queue.enqueue_many([queue.prepare_data(work, job, result_ttl=0) for job in jobs])
