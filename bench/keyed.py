"""What do keyed jobs cost, beside raw Celery tasks on the same Redis with the same two processes?

The time runs from the first submit to the last effect. One client submits raw tasks one by one, and jobs in portions
of 500 (`submit_many` checks a whole portion before it writes any of it). Meanwhile one worker with two processes works.
Redis keeps its append-only file (everysec), as it should in use. Raw tasks and keyed jobs run in turns, so that a
change of the machine's speed meets both.

There are two bodies. One appends a byte to a file, so that the figures show the coordinator and Celery. The other goes
to Redis and back. Jobs of one key have to wait for each other's bodies; raw tasks do not.

There are three ratios. The first compares jobs a second. The second compares jobs a second after the last submit, when
the worker has the machine for itself. The third compares the processor time of a job in all processes together: client,
worker and Redis. It does not depend on other work of the machine.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.servers import redis_server, worker

JOBS, RAW, PORTION = 20_000, 5_000, 500
SHAPES = {"1,000 keys x 20": 1_000, "20,000 keys x 1": 20_000, "1 key x 20,000": 1}


class Cost(NamedTuple):
    """Jobs a second, jobs a second after the last submit, and us of processor time for each job."""

    rate: float
    backlog: float
    cpu: float


class Body(NamedTuple):
    """A task, and a counter of its runs since `forget`."""

    task: Any
    done: Callable[[], int]
    forget: Callable[[], Any]


def main(rounds: int = 3) -> None:
    with redis_server("--appendonly", "yes") as url, tempfile.NamedTemporaryFile() as marks:
        os.environ |= {"BENCH_REDIS": url, "BENCH_MARKS": marks.name}
        from bench import app as bench  # the module reads the addresses of this run

        with worker(url):
            for title, body in bodies(bench, Path(marks.name)).items():
                print(f"{title}:")
                warm_up(bench, body)
                for shape, keys in SHAPES.items():
                    report(shape, [pair(bench, body, keys) for _ in range(rounds)])


def bodies(bench: Any, marks: Path) -> dict[str, Body]:
    return {
        "each leaves a byte in a file": Body(
            bench.mark, lambda: marks.stat().st_size, lambda: os.truncate(marks, 0)
        ),
        "each goes to Redis and back": Body(
            bench.count, lambda: int(bench.counter.get("done") or 0), lambda: bench.counter.delete("done")
        ),
    }  # fmt: skip


def pair(bench: Any, body: Body, keys: int) -> tuple[Cost, Cost]:
    """Raw tasks, then keyed jobs."""
    return cost(body, lambda: publish(body), RAW), cost(body, lambda: submit(bench, body, keys), JOBS)


def report(shape: str, pairs: list[tuple[Cost, Cost]]) -> None:
    raw, keyed = (Cost(*map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
    rates = sorted(one.rate / other.rate for other, one in pairs)
    backlogs = sorted(one.backlog / other.backlog for other, one in pairs)
    times = sorted(other.cpu / one.cpu for other, one in pairs)
    print(f"  {shape:15} {keyed.rate:6.0f}/s, raw {raw.rate:5.0f}/s: x {statistics.median(rates):.2f}"
          f" ({rates[0]:.2f} to {rates[-1]:.2f})   backlog {keyed.backlog:.0f}/s, raw {raw.backlog:.0f}/s:"
          f" x {statistics.median(backlogs):.2f}   processor {keyed.cpu:4.0f} us, raw {raw.cpu:5.0f} us:"
          f" x {statistics.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})", flush=True)  # fmt: skip


def warm_up(bench: Any, body: Body) -> None:
    body.forget()
    body.task.delay()
    bench.coordinator.submit("warm", body.task.s())
    until(body, 2)


def publish(body: Body) -> None:
    for _ in range(RAW):
        body.task.delay()


def submit(bench: Any, body: Body, keys: int) -> None:
    job = body.task.s()
    for start in range(0, JOBS, PORTION):
        bench.coordinator.submit_many((f"key/{number % keys}", job) for number in range(start, start + PORTION))


def cost(body: Body, send: Callable[[], None], jobs: int) -> Cost:
    body.forget()
    before, began = used(), time.perf_counter()
    send()
    sent, left = time.perf_counter(), jobs - body.done()
    until(body, jobs)
    ended = time.perf_counter()
    return Cost(jobs / (ended - began), left / (ended - sent), (used() - before) / jobs * 1e6)


def used() -> float:
    """Processor seconds of this process and all processes that it started."""
    mine = psutil.Process()
    times = (process.cpu_times() for process in (mine, *mine.children(recursive=True)))
    return sum(one.user + one.system for one in times)


def until(body: Body, wanted: int) -> None:
    while body.done() < wanted:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
