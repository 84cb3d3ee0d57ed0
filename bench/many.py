"""A million waiting jobs: what do a submit, a hand-over, a sweep and a page of lanes cost, compared with a thousand?

And what does a job with several keys cost, compared with a job with one? One runner works in this process. The waiting
jobs stand in lanes of ten, for a queue that no node serves.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench import amount
from bench.servers import redis_server
from bench.size import drain, register

FEW, MANY = amount((1_000, 1_000_000), (10, 20))
HOT, TIMES, ROUNDS = amount((2_000, 1_000, 5), (2, 2, 1))


def main() -> None:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        register(bench)
        drain(bench, HOT)
        fill(bench, 0, FEW)
        few = costs(bench)
        fill(bench, FEW, MANY)
        many = costs(bench)
        print(f"{'':22} {FEW:>10,} {MANY:>12,} waiting")
        for name, cost in few.items():
            print(f"{name:22} {cost:8.0f} us {many[name]:10.0f} us   x {many[name] / cost:.2f}")
        for keys in (1, 2, 4):
            print(f"hand-over, {keys} key(s) a job {several(bench, keys):6.0f} us")


def fill(bench: Any, start: int, end: int) -> None:
    job = bench.keep.s("").set(queue="nowhere")
    for at in range(start, end, 10_000):
        bench.coordinator.submit_many((f"lane/{n // 10:06}", job) for n in range(at, min(at + 10_000, end)))


def costs(bench: Any) -> dict[str, float]:
    coordinator, store = bench.coordinator, bench.coordinator.store
    job = bench.keep.s("").set(queue="nowhere")
    numbers = iter(range(10**9))
    return {
        "submit, a new lane": timed(lambda: coordinator.submit(f"new/{next(numbers)}", job)),
        "submit, in line": timed(lambda: coordinator.submit("lane/000050", job)),
        "hand-over": statistics.median(drain(bench, HOT) / HOT * 1e6 for _ in range(ROUNDS)),
        "sweep": timed(lambda: store.step("sweep", 0, 10**9, "")),
        "a page of 100 lanes": timed(lambda: coordinator.lanes("lane/00005", most=100), TIMES // 10 or 1),
    }


def timed(act: Callable[[], Any], times: int = TIMES) -> float:
    """Microseconds for one call, the median of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            act()
        rounds.append((time.perf_counter() - began) / times * 1e6)
    return statistics.median(rounds)


def several(bench: Any, keys: int) -> float:
    """Microseconds for one job, when many jobs with the same keys run one after another."""
    names = [f"hot/{number}" for number in range(keys)]
    rounds = []
    for _ in range(ROUNDS):
        bench.coordinator.submit_many((names, bench.keep.s("")) for _ in range(HOT))
        began = time.perf_counter()
        if bench.runner("bench").run("bell") != HOT:
            raise SystemExit("some jobs were left over")
        rounds.append((time.perf_counter() - began) / HOT * 1e6)
    return statistics.median(rounds)


if __name__ == "__main__":
    main()
