"""How much processor time does an idle fleet of three nodes and two beats take, beyond the same with plain Celery?

Each runs for a minute, one after the other: workers and beats as users start them, and their Redis.
"""

import os
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench import amount
from bench.servers import celery, redis_server

NODES, SLOTS, BEATS, SETTLE, SECONDS = amount((3, 2, 2, 30.0, 60.0), (1, 1, 1, 2.0, 0.5))


def main() -> None:
    plain, keyed = (shares(name) for name in ("bench.plain", "bench.app"))
    more = keyed.total() - plain.total()
    print(f"plain Celery {plain.total():.2f} %, with the coordinator {keyed.total():.2f} %: {more:+.2f} % of a core")
    for kind in keyed:
        print(f"  {kind:8} {keyed[kind] - plain[kind]:+.2f} %")


def shares(app: str) -> Counter[str]:
    """Per cent of one core, by kind of process."""
    with ExitStack() as stack:
        url, folder = stack.enter_context(redis_server()), Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["BENCH_REDIS"] = url
        for number in range(NODES):
            stack.enter_context(celery(url, app, "worker", "-n", f"node{number}@bench", "-c", str(SLOTS)))
        for number in range(BEATS):
            last = folder / f"last-{number}"
            scheduler = ("-S", "coordinator.scheduler.Scheduler") if app == "bench.app" else ()
            stack.enter_context(celery(url, app, "beat", "-s", str(last), "--pidfile=", *scheduler))
        time.sleep(SETTLE)
        before, began = used(), time.monotonic()
        time.sleep(SECONDS)
        after, passed = used(), time.monotonic() - began
        return Counter({kind: (after[kind] - before[kind]) / passed * 100 for kind in after})


def used() -> Counter[str]:
    """Processor seconds of all child processes, by kind."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        found[kind_of(process.cmdline())] += times.user + times.system
    return found


def kind_of(command: list[str]) -> str:
    named = ("redis-server", "coordinator.core.supervisor", "coordinator.core.maintenance", "beat")
    said = next((name for name in named if any(name in part for part in command[:6])), "worker")
    return {
        "redis-server": "Redis",
        "coordinator.core.supervisor": "supervisor",
        "coordinator.core.maintenance": "maintenance",
    }.get(said, said)


if __name__ == "__main__":
    main()
