"""Nodes of 1, 1, 2 and 4 slots and jobs with a heavy tail: how near to the best there is, beside giving each job to a
node beforehand? And with one node that runs for a fifth of the time?
"""

import os
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from bench.schedules import Slots, at_random, best, end_of, heavy_tail, in_turns
from bench.servers import redis_server, slowed, worker

CAPACITIES = {"a": 1, "b": 1, "c": 2, "d": 4}
JOBS = 2_000
UNIT = 0.0102  # what a sleep of 10 ms takes


def main() -> None:
    with redis_server() as url, ExitStack() as stack:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # it reads the address of this run's Redis

        workers = {name: stack.enter_context(worker(url, name, slots)) for name, slots in CAPACITIES.items()}
        while len(bench.coordinator.nodes()) < len(CAPACITIES):
            time.sleep(0.1)
        report(bench, "all alike", [Slots(slots) for slots in CAPACITIES.values()])
        with slowed(workers["a"].pid):
            report(bench, "one slow", [Slots(1, 0.2), *(Slots(slots) for slots in (1, 2, 4))])


def report(bench: Any, name: str, nodes: list[Slots]) -> None:
    sizes = heavy_tail(1, JOBS)
    began = time.perf_counter()
    asked = bench.coordinator.submit_many((f"{name}{i}", bench.toil.s(size)) for i, size in enumerate(sizes))
    jobs = [bench.coordinator.wait(one.job_id) for one in asked]
    took = time.perf_counter() - began
    seconds = [UNIT * size for size in sizes]
    least = best(seconds, nodes)
    ways = {"in turns": in_turns(nodes), "at random": at_random(nodes, 1)}
    peers = ", ".join(f"{way} {end_of(seconds, nodes, choose) / least:.2f}" for way, choose in ways.items())
    print(f"{name}: {JOBS} jobs, {took:.1f} s, {took / least:.3f} of the best there is; {peers}")
    busy = Counter[str]()
    for job, one in zip(jobs, seconds, strict=True):
        busy[str(job.node)] += one
    used = {one: busy[f"{one}@bench"] / slots / took for one, slots in CAPACITIES.items()}
    print(f"{name}: of its slots' time each node used " + ", ".join(f"{one} {use:.2f}" for one, use in used.items()))


if __name__ == "__main__":
    main()
