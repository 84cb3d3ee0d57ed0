"""A hundred thousand tenants, each with a group of its own and a quota in use: how much do these weigh, and is a claim
dearer than among a hundred?

The steps are called from this process, one after the other. A job runs in each quota, by the default `tenant/*`.
"""

import itertools
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench import amount
from bench.servers import redis_server
from tests.harness.hand_node import Puppet, Taken, sketch

FEW, MANY, CLAIMS, PORTION = amount((100, 100_000, 2_000, 1_000), (3, 6, 3, 3))


def main() -> None:
    for count in (FEW, MANY):
        (plain, once), (grouped, twice), (used, thrice) = (
            measure(count, key, quota) for key, quota in (("key-{}", False), ("{}/key", False), ("{}/key", True))
        )
        print(f"{count:,} tenants: a group {(grouped - plain) / count:,.0f} bytes, a quota in use "
              f"{(used - grouped) / count:,.0f} bytes; finish and claim: {once * 1e6:.0f} µs of one group, "
              f"{twice * 1e6:.0f} µs of as many, {thrice * 1e6:.0f} µs with as many quotas", flush=True)  # fmt: skip


def measure(count: int, of_key: str, quota: bool) -> tuple[int, float]:
    """Each tenant has a job that runs and one that is ready. The memory of all, and the seconds of a step."""
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from coordinator import Coordinator

        coordinator = Coordinator(url=f"{url}/0", timeout=60)
        node = Puppet(coordinator.store)
        node.up(capacity=4 * count)
        coordinator.quota("tenant/*", concurrency=2)
        client: Any = coordinator.store._client
        before = client.info("memory")["used_memory"]
        for number in range(2):
            submit(node, count, of_key, quota, number)
            if not number:
                running = [node.must_take() for _ in range(count)]
        memory = client.info("memory")["used_memory"] - before
        took = statistics.median(itertools.islice(steps(node, running), CLAIMS))
        coordinator.store.close()
        return memory, took


def submit(node: Puppet, count: int, of_key: str, quota: bool, number: int) -> None:
    for start in range(0, count, PORTION):
        numbers = range(start, min(start + PORTION, count))
        options = [{"uses": f"tenant/{one}"} if quota else {} for one in numbers]
        keys = [of_key.format(f"t{one}") + f"-{number}" for one in numbers]
        node.lanes.submit_many(sketch(key, **more) for key, more in zip(keys, options, strict=True))


def steps(node: Puppet, running: list[Taken]) -> Iterator[float]:
    """The seconds of each: a job ends, and its runner gets the next one."""
    for number, taken in enumerate(running):
        began = time.perf_counter()
        done = node.finish(taken, next_token=f"next-{number:06}-token")
        yield time.perf_counter() - began
        assert done.verdict == "accepted"


if __name__ == "__main__":
    main()
