"""What does each query of an operator cost beside a million kept jobs and 100,000 lanes, and each command?

The kept jobs are copies of a few that really ran; each lane has one job that waits for a queue that no node serves.
Beside the time on the clock stands that of the processors, the caller's and Redis' together: other work on the machine
changes it little.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import amount
from bench.servers import redis_server
from bench.size import fill, register

KEPT, LANES, TIMES = amount((1_000_000, 100_000, 9), (8, 4, 1))
COMMANDS = (
    ("jobs", "--state", "failed", "--since", "1d"), ("job", "copy 1"), ("lane", "customer/7/x"), ("lanes",),
    ("why", "waits"), ("why", "--summary"), ("doctor",), ("nodes",), ("actions",), ("schedule",), ("grabs",),
    ("sorters",), ("metrics",), ("status",),
)  # fmt: skip
KINDS = 8  # jobs that really ran, of which every eighth failed
COPY = """
local jobs = KEYS[1] .. 'job:'
for i = ARGV[1], ARGV[2] do
  local from, id, key = ARGV[4 + i % (#ARGV - 3)], 'copy ' .. i, 'customer/' .. i % 100000 .. '/x'
  local state, at = redis.call('HGET', jobs .. from, 'state'), string.format('%013d', ARGV[3] + i)
  redis.call('COPY', jobs .. from, jobs .. id)
  redis.call('HSET', jobs .. id, 'keys', key, 'ended', at)
  redis.call('HDEL', jobs .. id, 'past')
  redis.call('ZADD', KEYS[1] .. 'ended:' .. state, at, id)
  redis.call('ZADD', KEYS[1] .. 'lane-runs', 0, key .. '\\0' .. at .. '\\0' .. id)
end
"""


def main() -> None:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        register(bench)
        keep(bench)
        fill(bench, LANES)
        bench.coordinator.submit("lane/1", bench.keep.s("x"), job_id="waits")
        store = bench.coordinator.store
        store._client.hset(store.key("node", "bench"), "capacity", 1)  # a node without room has half a slot there
        print(f"beside {KEPT:,} kept jobs and {LANES:,} lanes, the median of {TIMES}")
        chosen = COMMANDS[: amount(None, 1)]
        commands = {f"coordinator {' '.join(command)}": partial(run, url, *command) for command in chosen}
        for name, act in (queries(bench.coordinator) | commands).items():
            passed, used = timed(store._client, act)
            print(f"{name:46} {passed * 1000:7.1f} ms, of processors {used * 1000:7.1f} ms", flush=True)


def keep(bench: Any) -> None:
    """Run some jobs, and copy their records to the wanted number, with lists as sweeps leave them."""
    store, ids = bench.coordinator.store, []
    for number in range(KINDS):
        ids.append(bench.coordinator.submit(f"real/{number}", bench.keep.s(f"needle {number}")).id)
    bench.runner("bench").run("bell")
    store._client.hset(store.key("job", ids[0]), mapping={"state": "failed", "error": '{"type": "Timeout"}'})
    began, script = store.now() - KEPT, store._client.register_script(COPY)
    for start in range(0, KEPT, 1_000):
        script(keys=[store.prefix], args=[start, min(start + 1_000, KEPT) - 1, began, *ids])
        store.step("sweep", 0, 10**9, "")


def queries(coordinator: Any) -> dict[str, Callable[[], Any]]:
    last = coordinator.jobs(state="succeeded").after
    return {
        "a job": lambda: coordinator.job("copy 1"),
        "the last 50 failures": lambda: coordinator.jobs(state="failed"),
        "failures of the last hour": lambda: coordinator.jobs(state="failed", since="1h"),
        "the next page of successes": lambda: coordinator.jobs(state="succeeded", after=last),
        "a lane's jobs": lambda: coordinator.jobs(key="customer/7/x"),
        "jobs of keys that begin with customer/7": lambda: coordinator.jobs(key="customer/7*"),
        "jobs that run": lambda: coordinator.jobs(state="running"),
        "jobs that wait": lambda: coordinator.jobs(state="waiting"),
        "a task that no job has, in 10,000": lambda: coordinator.jobs(state="succeeded", task="none"),
        "an error that no job has, in 10,000": lambda: coordinator.jobs(state="failed", error="none"),
        "an argument that no job has, in 10,000": lambda: coordinator.jobs(state="succeeded", text="none"),
        "a task that no waiting job has, in 10,000": lambda: coordinator.jobs(state="waiting", task="none"),
        "a lane with its last runs": lambda: coordinator.lane("customer/7/x"),
        "rates and counts": lambda: coordinator.rates(),
        "why a job waits": lambda: coordinator.why("waits"),
        "why a lane stands": lambda: coordinator.why(key="lane/1"),
        "why a node does nothing": lambda: coordinator.why(node="bench"),
        "why all waits that waits": lambda: coordinator.why_summary(),
        "the first 1,000 lanes": lambda: coordinator.lanes(),
        "the longest lines": lambda: coordinator.contended(),
        "which tenant floods": lambda: coordinator.tenants(seconds=None),
        "the nodes": lambda: coordinator.nodes(),
        "the last 100 acts": lambda: coordinator.actions(),
        "grabs, sorters and entries": lambda: (coordinator.grabs(), coordinator.sorters(), coordinator.entries.all()),
        "a plan: cancel all that waits in 1,000 lanes": lambda: coordinator.plan.act("cancel", key="lane/1*"),
    }


def timed(client: Any, act: Callable[[], Any]) -> tuple[float, float]:
    """Seconds for one call, the median: on the clock, and of processors."""
    rounds = []
    for _ in range(TIMES):
        began, used = time.perf_counter(), used_by(client)
        act()
        rounds.append((time.perf_counter() - began, used_by(client) - used))
    passed, used = (statistics.median(column) for column in zip(*rounds, strict=True))
    return passed, used


def used_by(client: Any) -> float:
    """Processor seconds of this process, its ended children, and Redis."""
    info, children = client.info("cpu"), resource.getrusage(resource.RUSAGE_CHILDREN)
    of_redis = float(info["used_cpu_user"] + info["used_cpu_sys"])
    return of_redis + time.process_time() + children.ru_utime + children.ru_stime


def run(url: str, *command: str) -> None:
    env = {**os.environ, "COORDINATOR_URL": f"{url}/0", "COORDINATOR_APP": "bench.app"}
    done = subprocess.run(
        [sys.executable, "-m", "coordinator", *command], env=env, capture_output=True, text=True, check=False
    )
    found_wrong = command[0] in ("doctor", "status") and done.returncode in (1, 2)
    assert found_wrong or not done.returncode, done.stderr


if __name__ == "__main__":
    main()
