"""How many keyed jobs a second, beside raw Celery tasks on the same Redis with the same two processes?

From the first submit to the last effect: one client submits while one worker with two processes works. Redis keeps its
append-only file (everysec), as it should in use.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.servers import redis_server, worker

JOBS = 20_000
SHAPES = {"1,000 keys x 20": 1_000, "20,000 keys x 1": 20_000, "1 key x 20,000": 1}


def main(rounds: int = 3) -> None:
    with redis_server("--appendonly", "yes") as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # it reads the address of this run's Redis

        with worker(url):
            warm_up(bench)
            raw: list[float] = []
            keyed: dict[str, list[float]] = {shape: [] for shape in SHAPES}
            for _ in range(rounds):
                raw.append(rate(bench, lambda: publish(bench)))
                for shape, keys in SHAPES.items():
                    keyed[shape].append(rate(bench, lambda keys=keys: submit(bench, keys)))  # type: ignore[misc]
            report(raw, keyed)


def report(raw: list[float], keyed: dict[str, list[float]]) -> None:
    print(f"raw Celery tasks   {statistics.median(raw):8.0f}/s")
    for shape, rates in keyed.items():
        ratios = [one / other for one, other in zip(rates, raw, strict=True)]
        print(f"{shape:18} {statistics.median(rates):8.0f}/s   x {statistics.median(ratios):.2f} raw"
              f"   ({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


def warm_up(bench: Any) -> None:
    bench.counter.delete("done")
    bench.count.delay()
    bench.coordinator.submit("warm", bench.count.s())
    until(bench, 2)


def publish(bench: Any) -> None:
    for _ in range(JOBS):
        bench.count.delay()


def submit(bench: Any, keys: int) -> None:
    job = bench.count.s()
    bench.coordinator.submit_many((f"key/{number % keys}", job) for number in range(JOBS))


def rate(bench: Any, send: Callable[[], None]) -> float:
    bench.counter.delete("done")
    began = time.perf_counter()
    send()
    until(bench, JOBS)
    return JOBS / (time.perf_counter() - began)


def until(bench: Any, wanted: int) -> None:
    while int(bench.counter.get("done") or 0) < wanted:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
