"""How long from a kill until what ran is resumed, by what was killed? Real nodes, settings as they are by default."""

import os
import statistics
import time
from contextlib import ExitStack
from typing import Any

import psutil

from bench.servers import family, redis_server, worker

JOBS = 4
KINDS = {"pool process": 5, "worker": 5, "worker and warden": 4, "node": 4}


def main() -> None:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # it reads the address of this run's Redis

        for kind, rounds in KINDS.items():
            found = sorted(took for number in range(rounds) for took in kill(bench, url, kind, number))
            p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
            print(f"{kind:18} p50 {statistics.median(found):6.2f} s, p99 {p99:6.2f} s of {len(found)} jobs", flush=True)


def kill(bench: Any, url: str, kind: str, number: int) -> list[float]:
    """Seconds until each of the jobs of a node began again."""
    name = f"{kind.replace(' ', '-')}{number}"
    names = [f"{name}-{i}" for i in range(JOBS)]
    with ExitStack() as stack:
        victim = stack.enter_context(worker(url, name, JOBS))
        ids = [bench.coordinator.submit(one, bench.hold.s(one)).job_id for one in names]
        began(bench, names, 1)
        stack.enter_context(worker(url, f"{name}-other", JOBS))
        until(lambda: len([node for node in bench.coordinator.nodes() if node.name.startswith(name)]) == 2)
        for process in chosen(kind, victim.pid):
            process.kill()
        whole, micro = bench.counter.time()
        again = began(bench, names, 2)
        for one in names:
            bench.counter.rpush(f"go:{one}", 1, 1)
        for job_id in ids:
            bench.coordinator.wait(job_id, 60)
    return [(at - (whole * 1_000_000 + micro)) / 1e6 for at in again]


def chosen(kind: str, pid: int) -> list[psutil.Process]:
    everyone = family(pid)
    wardens = [one for one in everyone if "coordinator.companion" in one.cmdline()]
    pool = [one for one in everyone[1:] if one not in wardens]
    parts = {"pool process": pool, "worker": everyone[:1], "worker and warden": [*wardens, everyone[0]]}
    return parts.get(kind, everyone)


def began(bench: Any, names: list[str], times: int) -> list[int]:
    """When each began for the last time, once it did so often: µs of Redis's clock."""
    until(lambda: all(bench.counter.llen(f"began:{name}") >= times for name in names))
    return [int(bench.counter.lindex(f"began:{name}", -1)) for name in names]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("not within 90 s")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
