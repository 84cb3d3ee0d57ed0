"""What do keyed jobs cost, beside raw Celery tasks on the same Redis with the same two processes?

    python -m bench.keyed [--modes plain,results,events] [--bodies redis,byte] [--fsync everysec,always]
                          [--pools prefork,threads] [--shapes many,single,hot] [--rounds 3] [--full]

The worker is started as users start one: `celery -A bench.app worker -c 2`, nothing else. One client submits raw tasks
one by one, and jobs in portions of 500 (`submit_many` checks a whole portion before it writes any of it). Meanwhile
that worker works. The time runs from the first submit to the last effect. Raw tasks and keyed jobs run in turns, so
that a change of the machine's speed meets both.

    plain      nobody keeps a result
    results    each stores its result in Redis; the time runs until the last is there
    events     the same, the worker has -E, and Flower is connected

There are two bodies. One appends a byte to a file, so that the figures show the coordinator and Celery. The other goes
to Redis and back. Jobs of one key have to wait for each other's bodies; raw tasks do not.

There are three ratios. The first compares jobs a second. The second compares jobs a second after the last submit, when
the worker has the machine for itself. The third compares the processor time of a job in all processes together: client,
worker and Redis (and Flower). It does not depend on other work of the machine.
"""

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import amount
from bench.servers import flower, redis_server, worker

JOBS, RAW, PORTION = amount((20_000, 3_000, 500), (20, 5, 10))
SHAPES = {"many": ("1,000 keys x 20", 1_000), "single": ("20,000 keys x 1", 20_000), "hot": ("1 key x 20,000", 1)}
BODIES = {"redis": "each goes to Redis and back", "byte": "each leaves a byte in a file"}
MODES = {"plain": "no results", "results": "results in Redis", "events": "results, -E, and Flower connected"}


class Cost(NamedTuple):
    """Jobs a second, jobs a second after the last submit, and us of processor time for each job."""

    rate: float
    backlog: float
    cpu: float


class Body(NamedTuple):
    """A task, a counter of its runs since `forget`, and one of its results."""

    task: Any
    runs: Callable[[], int]
    results: Callable[[], int] | None
    forget: Callable[[], Any]

    def done(self) -> int:
        return min(self.runs(), self.results()) if self.results else self.runs()


def main() -> None:
    """Measure each fleet in a process of its own: the app's module reads its addresses once."""
    wanted = arguments()
    fleets = list(itertools.product(wanted.fsync, wanted.pools, wanted.modes))
    if len(fleets) == 1:
        measure(*fleets[0], wanted)
        return
    for fsync, pool, mode in fleets:
        options = {"fsync": fsync, "pools": pool, "modes": mode, "rounds": str(wanted.rounds)}
        options |= {"bodies": ",".join(wanted.bodies), "shapes": ",".join(wanted.shapes)}
        argv = [sys.executable, "-m", "bench.keyed", *(f"--{name}={value}" for name, value in options.items())]
        subprocess.run(argv, check=True)


def measure(fsync: str, pool: str, mode: str, wanted: argparse.Namespace) -> None:
    print(f"{MODES[mode]} · pool {pool} · append-only file {fsync}:", flush=True)
    with fleet(fsync, pool, mode) as bench:
        for name in wanted.bodies:
            print(f"  {BODIES[name]}:")
            body = bodies(bench, mode != "plain")[name]
            warm_up(bench, body)
            for shape in wanted.shapes:
                title, keys = SHAPES[shape]
                report(title, [pair(bench, body, keys) for _ in range(wanted.rounds)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench keyed", description=str(__doc__).partition("\n")[0])
    for name, known, usual in (
        ("modes", list(MODES), amount(list(MODES), ["events"])),
        ("bodies", list(BODIES), ["redis"]),
        ("fsync", ["everysec", "always"], ["everysec"]),
        ("pools", ["prefork", "threads"], ["prefork"]),
        ("shapes", list(SHAPES), amount(list(SHAPES), ["many"])),
    ):
        parser.add_argument(f"--{name}", type=chosen(known), default=usual, help=f"of {', '.join(known)}")
    parser.add_argument("--rounds", type=int, default=amount(3, 1))
    parser.add_argument("--full", action="store_true", help="all of all")
    found = parser.parse_args()
    if found.full:
        found.bodies, found.fsync, found.pools = list(BODIES), ["everysec", "always"], ["prefork", "threads"]
    return found


def chosen(known: list[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: choose from {', '.join(known)}")
        return names

    return parse


@contextmanager
def fleet(fsync: str, pool: str, mode: str) -> Iterator[Any]:
    """A Redis, a worker, and the module of the app in this process."""
    with redis_server("--appendonly", "yes", "--appendfsync", fsync) as url, tempfile.NamedTemporaryFile() as marks:
        os.environ |= {"BENCH_REDIS": url, "BENCH_MARKS": marks.name, "BENCH_RESULTS": "" if mode == "plain" else "1"}
        from bench import app as bench  # the module reads the addresses of this run

        flags = ["-P", pool] if pool != "prefork" else []
        if mode != "events":
            with worker(url, flags=flags):
                yield bench
        else:
            with worker(url, flags=[*flags, "-E"]), flower(url):
                yield bench


def bodies(bench: Any, results: bool) -> dict[str, Body]:
    marks, stored = Path(os.environ["BENCH_MARKS"]), bench.stored if results else None

    def forget_marks() -> None:
        os.truncate(marks, 0)
        bench.forget_results()

    def forget_count() -> None:
        bench.counter.delete("done")
        bench.forget_results()

    return {
        "byte": Body(bench.mark, lambda: marks.stat().st_size, stored, forget_marks),
        "redis": Body(bench.count, lambda: int(bench.counter.get("done") or 0), stored, forget_count),
    }


def pair(bench: Any, body: Body, keys: int) -> tuple[Cost, Cost]:
    """Raw tasks, then keyed jobs."""
    return cost(body, lambda: publish(body), RAW), cost(body, lambda: submit(bench, body, keys), JOBS)


def report(shape: str, pairs: list[tuple[Cost, Cost]]) -> None:
    raw, keyed = (Cost(*map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
    rates = sorted(one.rate / other.rate for other, one in pairs)
    backlogs = sorted(one.backlog / other.backlog for other, one in pairs)
    # The system counts processor time in ticks of 10 ms: a round of the smallest form may have none.
    times = sorted(other.cpu / one.cpu for other, one in pairs if one.cpu) or [math.nan]
    print(f"    {shape:15} {keyed.rate:6.0f}/s, raw {raw.rate:5.0f}/s: x {statistics.median(rates):.2f}"
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


def submit(bench: Any, body: Body, keys: int, jobs: int = JOBS) -> None:
    job = body.task.s()
    for start in range(0, jobs, PORTION):
        bench.coordinator.submit_many((f"key/{number % keys}", job) for number in range(start, start + PORTION))


def cost(body: Body, send: Callable[[], None], jobs: int) -> Cost:
    body.forget()
    before, began = used(), time.perf_counter()
    send()
    sent, left = time.perf_counter(), max(1, jobs - body.done())
    until(body, jobs)
    ended = time.perf_counter()
    return Cost(jobs / (ended - began), left / (ended - sent), (used() - before) / jobs * 1e6)


def used() -> float:
    """Processor seconds of this process and all its children."""
    mine = psutil.Process()
    times = (process.cpu_times() for process in (mine, *mine.children(recursive=True)))
    return sum(one.user + one.system for one in times)


def until(body: Body, wanted: int) -> None:
    while body.done() < wanted:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
