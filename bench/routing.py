"""Nodes of 1, 1, 2 and 4 slots, and jobs with a heavy tail: how near is the coordinator to the best possible time?

The peers give each job to a node beforehand. A second round slows one node to a fifth.
"""

import os
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from bench import amount
from bench.schedules import Slots, at_random, best, end_of, heavy_tail, in_turns
from bench.servers import redis_server, slowed, worker

CAPACITIES = amount({"a": 1, "b": 1, "c": 2, "d": 4}, {"a": 1})
JOBS = amount(2_000, 4)
UNIT = 0.0102  # the real length of a sleep of 10 ms


def main() -> None:
    with redis_server() as url, ExitStack() as stack:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        workers = {name: stack.enter_context(worker(url, name, slots)) for name, slots in CAPACITIES.items()}
        while len(bench.coordinator.nodes()) < len(CAPACITIES):
            time.sleep(0.1)
        report(bench, "all alike", nodes := [Slots(slots) for slots in CAPACITIES.values()])
        with slowed(workers["a"].pid):
            report(bench, "one slow", [Slots(1, 0.2), *nodes[1:]])


def report(bench: Any, name: str, nodes: list[Slots]) -> None:
    sizes = heavy_tail(1, JOBS)
    began = time.perf_counter()
    asked = bench.coordinator.submit_many((f"{name}{i}", bench.toil.s(size)) for i, size in enumerate(sizes))
    jobs = [bench.coordinator.wait(one.id) for one in asked]
    took = time.perf_counter() - began
    seconds = [UNIT * size for size in sizes]
    least = best(seconds, nodes)
    ways = {"in turns": in_turns(nodes), "at random": at_random(nodes, 1)}
    peers = ", ".join(f"{way} {end_of(seconds, nodes, choose) / least:.2f}" for way, choose in ways.items())
    print(f"{name}: {JOBS} jobs, {took:.1f} s, {took / least:.3f} of the best time; {peers}")
    busy = Counter[str]()
    for job, one in zip(jobs, seconds, strict=True):
        busy[str(job.node)] += one
    used = {one: busy[f"{one}@bench"] / slots / took for one, slots in CAPACITIES.items()}
    print(
        f"{name}: the share of its slots' time that each node used: "
        + ", ".join(f"{one} {use:.2f}" for one, use in used.items())
    )


if __name__ == "__main__":
    main()
