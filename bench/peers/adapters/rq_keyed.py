"""RQ with a rate limit of one job at a time for each key. Its bulk call takes no rate limit."""

from rq import RateLimit

from bench.peers.adapters.rq import WORKER, queue, work

__all__ = ["PORTION", "WORKER", "send"]

PORTION = 100


def send(jobs: list[tuple[int, int]]) -> None:
    for key, number in jobs:
        queue.enqueue(work, key, number, result_ttl=0, rate_limit=RateLimit(f"key/{key}", 1))
