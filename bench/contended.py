"""Fifty waiters on one lock: how many requests and how much time does a hand-over take, beside redis-py's Lock?

Fifty processes wait for a lock. Its holder releases it, and each of them holds it once. A hand-over lasts from the
last action of one holder to the first action of the next. redis-py's waiters poll each 100 ms, their default. Redis
counts the requests from the first release on, without those inside scripts.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any

import redis

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator

WAITERS, ROUNDS = amount((50, 4), (2, 1))
SENT = ("evalsha", "fcall", "blpop", "set")


def main() -> None:
    with redis_server() as url:
        for name, make in (("coordinator.lock", ours), ("redis-py Lock", theirs)):
            report(name, url, make)


def ours(url: str) -> Callable[[], AbstractContextManager[Any]]:
    coordinator = Coordinator(url=f"{url}/0")
    return lambda: coordinator.lock("hot", blocking_timeout=300)


def theirs(url: str) -> Callable[[], AbstractContextManager[Any]]:
    client = redis.Redis.from_url(f"{url}/0")
    return lambda: client.lock("hot-theirs", timeout=30)


def report(name: str, url: str, make: Callable[[str], Any]) -> None:
    client, lock = redis.Redis.from_url(f"{url}/3"), make(url)
    gaps: list[float] = []
    sent = 0
    for _ in range(ROUNDS):
        client.delete("stamps", "waiting")
        with lock():
            processes = [
                multiprocessing.get_context("fork").Process(target=wait, args=(url, make)) for _ in range(WAITERS)
            ]
            for process in processes:
                Context().run(process.start)  # a fork would say that it works for the one who holds the lock
            while client.llen("waiting") < WAITERS:
                time.sleep(0.05)
            time.sleep(1)
            client.config_resetstat()
            client.rpush("stamps", time.time())
        for process in processes:
            process.join()
        stats = client.info("commandstats")
        sent += sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in SENT)
        stamps = [float(stamp) for stamp in client.lrange("stamps", 0, -1)]
        gaps += [later - earlier for earlier, later in zip(stamps[::2], stamps[1::2], strict=False)]
    gaps.sort()
    p99, middle = gaps[int(len(gaps) * 0.99)] * 1000, statistics.median(gaps) * 1000
    handed = WAITERS * ROUNDS
    print(f"{name:18} {sent / handed:6.1f} requests, p50 {middle:7.2f} ms, p99 {p99:7.2f} ms a hand-over")


def wait(url: str, make: Callable[[str], Any]) -> None:
    lock, client = make(url), redis.Redis.from_url(f"{url}/3")
    client.rpush("waiting", 1)
    with lock():
        client.rpush("stamps", time.time())
        time.sleep(0.005)
        client.rpush("stamps", time.time())


if __name__ == "__main__":
    main()
