"""What does a submit cost its caller, beside `apply_async`?

One client on one Redis, and nobody who works meanwhile. Raw tasks, submits one by one and submits in portions of 500 go
in turns, so that a change of the machine's speed meets all.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench import amount
from bench.servers import redis_server

CALLS, PORTION, ROUNDS = amount((2_000, 500, 7), (4, 2, 1))


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis
        from bench.size import register

        register(bench)
        ways = {
            "apply_async": lambda: publish(bench),
            "one by one": lambda: each(bench),
            "in bulk": lambda: bulk(bench),
        }
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                costs[name].append(timed(way))
        raw = costs["apply_async"]
        for name, found in costs.items():
            ratios = sorted(one / other for one, other in zip(raw, found, strict=True))
            print(f"{name:12} {statistics.median(found):6.0f} us   x {statistics.median(ratios):.2f}"
                  f" ({ratios[0]:.2f} to {ratios[-1]:.2f})")  # fmt: skip


def timed(way: Callable[[], None]) -> float:
    """us for each call."""
    began = time.perf_counter()
    way()
    return (time.perf_counter() - began) / CALLS * 1e6


def publish(bench: Any) -> None:
    for _ in range(CALLS):
        bench.keep.apply_async(("x",))


def each(bench: Any) -> None:
    job = bench.keep.s("x")
    for number in range(CALLS):
        bench.coordinator.submit(f"key/{number}", job)


def bulk(bench: Any) -> None:
    job = bench.keep.s("x")
    for start in range(0, CALLS, PORTION):
        bench.coordinator.submit_many((f"key/{number}", job) for number in range(start, start + PORTION))


if __name__ == "__main__":
    main()
