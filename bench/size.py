"""Does size matter? One hot key with many waiting, 100,000 lanes in flight beside it, and what a waiting job weighs.

One runner works in this process, so that the figures show the hand-over: finish a job, take the next one of its lane.
"""

import os
import time
from typing import Any

from bench import amount
from bench.servers import redis_server

WAITERS, LANES, PORTION = amount((10_000, 100_000, 10_000), (4, 4, 2))
TEXT = "x" * 100


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        register(bench)
        print(f"bytes a waiting job with {len(TEXT)} bytes of arguments: {weight(bench):.0f}")
        once, twice = drain(bench, WAITERS), drain(bench, 2 * WAITERS)
        print(f"{WAITERS} on one key      {WAITERS / once:8.0f} jobs/s")
        rate = 2 * WAITERS / twice
        print(f"{2 * WAITERS} on one key      {rate:8.0f} jobs/s   time x {twice / once:.2f} for twice as many")
        before = used(bench)
        fill(bench, LANES)
        print(f"bytes the same in a lane of its own: {(used(bench) - before) / LANES:.0f}")
        beside = drain(bench, WAITERS)
        print(f"beside {LANES} lanes   {WAITERS / beside:8.0f} jobs/s   hand-over x {beside / once:.2f}")
        print(f"keys left of drained lanes: {left(bench)}")


def register(bench: Any) -> None:
    """A node that serves the queue `celery` and has no room: no submit rings it."""
    tasks = ["bench.app.count", "bench.app.keep"]
    about = {"app": "bench", "capacity": 0.5, "ordinary": 0, "load": 0}
    bench.coordinator.store.settings.__dict__["node_ttl"] = 86400.0
    nodes = bench.Nodes(bench.coordinator.store)
    nodes.register("bench", bench.coordinator._incarnation, about, ["app bench", "queue celery"], tasks)


def weight(bench: Any) -> float:
    """The bytes of each of 10,000 jobs that wait in one lane, behind a job that no node serves."""
    client, before = bench.coordinator.store._client, used(bench)
    jobs = bench.coordinator.submit_many(("weight", bench.keep.s(TEXT).set(queue="nowhere")) for _ in range(WAITERS))
    found = (used(bench) - before) / WAITERS
    for job in jobs:
        client.unlink(bench.coordinator.store.key("job", job.id))
    names = (("line", "weight"), ("ready", "bench\nnowhere"), ("group", "\nbench\nnowhere"))
    client.delete(*(bench.coordinator.store.key(*name) for name in names))
    client.zrem(bench.coordinator.store.key("lanes"), "weight")
    return found


def used(bench: Any) -> int:
    """The bytes of Redis."""
    return int(bench.coordinator.store._client.info("memory")["used_memory"])


def fill(bench: Any, lanes: int) -> None:
    for start in range(0, lanes, PORTION):
        jobs = ((f"lane/{number}", bench.keep.s(TEXT).set(queue="nowhere")) for number in range(start, start + PORTION))
        bench.coordinator.submit_many(jobs)


def drain(bench: Any, jobs: int) -> float:
    """Seconds to run these jobs of one key."""
    bench.coordinator.submit_many(("hot", bench.keep.s(TEXT)) for _ in range(jobs))
    began = time.perf_counter()
    done = bench.runner("bench").run("bell")
    seconds = time.perf_counter() - began
    if done != jobs:
        raise SystemExit(f"only {done} of {jobs} jobs ran")
    return seconds


def left(bench: Any) -> int:
    """The keys of the hot lane, except the finished jobs' records, which are kept for an hour."""
    store = bench.coordinator.store
    names = ("line:hot", "lock:hot", "ready:bench\ncelery", "group:\nbench\ncelery", "lanes", "leases", "work:bench")
    return sum(bool(store._client.exists(store.prefix + name)) for name in names)


if __name__ == "__main__":
    main()
