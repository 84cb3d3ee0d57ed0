"""How much processor time does an idle fleet of three nodes and two beats take, beyond the same with plain Celery?

Each runs for a minute, one after the other: workers and beats as users start them, and their Redis.
"""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.servers import celery, redis_server

NODES, BEATS, SETTLE, SECONDS = 3, 2, 15.0, 60.0


def main() -> None:
    plain, keyed = (share(name) for name in ("bench.plain", "bench.app"))
    print(f"plain Celery {plain:.2f} %, with the coordinator {keyed:.2f} %: {keyed - plain:+.2f} % of a core")


def share(app: str) -> float:
    """Per cent of one core."""
    with ExitStack() as stack:
        url, folder = stack.enter_context(redis_server()), Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["BENCH_REDIS"] = url
        for number in range(NODES):
            stack.enter_context(celery(url, app, "worker", "-n", f"node{number}@bench", "-c", "2"))
        for number in range(BEATS):
            last = folder / f"last-{number}"
            scheduler = ("-S", "coordinator.scheduler.Scheduler") if app == "bench.app" else ()
            stack.enter_context(celery(url, app, "beat", "-s", str(last), "--pidfile=", *scheduler))
        time.sleep(SETTLE)
        before, began = used(), time.monotonic()
        time.sleep(SECONDS)
        return (used() - before) / (time.monotonic() - began) * 100


def used() -> float:
    """Processor seconds of all processes that this one started."""
    times = (process.cpu_times() for process in psutil.Process().children(recursive=True))
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    main()
