"""How long from a kill until the jobs are resumed, by the kind of process? Real nodes, default settings."""

import os
import statistics
from contextlib import ExitStack
from typing import Any

import psutil

from bench import amount
from bench.servers import family, redis_server, worker
from tests.harness.waiting import wait_until

JOBS = amount(4, 1)
OTHERS = amount(("other",), ())  # a pool process has its worker left
KINDS = amount({"pool process": 5, "worker": 5, "worker and supervisor": 4, "node": 4}, {"pool process": 1})


def main() -> None:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        for kind, rounds in KINDS.items():
            found = sorted(took for number in range(rounds) for took in kill(bench, url, kind, number))
            p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
            print(f"{kind:18} p50 {statistics.median(found):6.2f} s, p99 {p99:6.2f} s of {len(found)} jobs", flush=True)


def kill(bench: Any, url: str, kind: str, number: int) -> list[float]:
    """Seconds until each job of a node began again."""
    name = f"{kind.replace(' ', '-')}{number}"
    names = [f"{name}-{i}" for i in range(JOBS)]
    with ExitStack() as stack:
        victim = stack.enter_context(worker(url, name, JOBS))
        ids = [bench.coordinator.submit(one, bench.hold.s(one)).id for one in names]
        began(bench, names, 1)
        for other in OTHERS:
            stack.enter_context(worker(url, f"{name}-{other}", JOBS))
        wait_until(
            lambda: len([node for node in bench.coordinator.nodes() if node.name.startswith(name)]) == 1 + len(OTHERS),
            90,
        )
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
    supervisors = [
        one
        for one in everyone
        if "coordinator.core.supervisor" in one.cmdline() or "coordinator.core.maintenance" in one.cmdline()
    ]
    pool = [one for one in everyone[1:] if one not in supervisors]
    parts = {"pool process": pool, "worker": everyone[:1], "worker and supervisor": [*supervisors, everyone[0]]}
    return parts.get(kind, everyone)


def began(bench: Any, names: list[str], times: int) -> list[int]:
    """The last start of each job, once it has started that often, in µs of Redis's clock."""
    wait_until(lambda: all(bench.counter.llen(f"began:{name}") >= times for name in names), 90)
    return [int(bench.counter.lindex(f"began:{name}", -1)) for name in names]


if __name__ == "__main__":
    main()
