"""How long from a submit to the start of the job on an idle fleet, beside a raw task? And from the end of a job to the
start of the next one on a hot key?

One worker of two processes, as users start it. Each task notes when it was sent, began and ended, by the machine's
monotonic clock. With `--elsewhere` the broker is another Redis. `plain`: a client without the app.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import amount
from bench.servers import redis_server, worker
from coordinator import Coordinator

LONE, HOT, PAUSE = amount((400, 5_000, 0.03), (2, 5, 0.0))


def main() -> None:
    with redis_server("--appendonly", "yes") as url, redis_server() as other, tempfile.NamedTemporaryFile() as marks:
        broker = f"{other if '--elsewhere' in sys.argv else url}/1"
        os.environ |= {"BENCH_REDIS": url, "BENCH_MARKS": marks.name, "BENCH_BROKER": broker}
        from bench import app as bench  # the module reads the addresses of this run

        path, plain = Path(marks.name), Coordinator(url=f"{url}/0")
        with worker(url):
            for _ in range(20):  # both processes have what they need
                bench.stamp.delay(0.0)
                bench.coordinator.submit("warm", bench.stamp.s(0.0))
            until(path, 40)
            ways: dict[str, Callable[[float], object]] = {
                "raw": bench.stamp.delay,
                "keyed": lambda now: bench.coordinator.submit("key", bench.stamp.s(now)),
                "plain": lambda now: plain.submit("key", {"task": "bench.app.stamp", "args": [now]}),
            }
            spans = [began - sent for sent, began, _ in lone(path, [*ways.values()])]
            for place, name in enumerate(ways):
                print(f"from submit to start, {name:5}: {shown(spans[place :: len(ways)])}")
            print(f"from the end of a job to the start of the next on a hot key: {shown(hot(path, bench))}")


def lone(path: Path, ways: list[Callable[[float], object]]) -> list[list[float]]:
    """The stamps of tasks, one by one, by all ways in turns: so a change of the machine's speed affects all."""
    os.truncate(path, 0)
    for number in range(LONE * len(ways)):
        ways[number % len(ways)](time.monotonic())
        until(path, number + 1)
        time.sleep(PAUSE)
    return stamps(path)


def hot(path: Path, bench: Any) -> list[float]:
    os.truncate(path, 0)
    bench.coordinator.submit_many(("hot", bench.stamp.s(0.0)) for _ in range(HOT))
    until(path, HOT)
    found = sorted(stamps(path), key=lambda one: one[1])
    return [after[1] - before[2] for before, after in pairwise(found)]


def stamps(path: Path) -> list[list[float]]:
    return [[float(part) for part in line.split()] for line in path.read_text().splitlines()]


def until(path: Path, wanted: int) -> None:
    while path.read_bytes().count(b"\n") < wanted:
        time.sleep(0.002)


def shown(spans: list[float]) -> str:
    found = sorted(spans)
    p50, p99 = (found[int(len(found) * part)] * 1000 for part in (0.5, 0.99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {found[-1] * 1000:.1f} ms"


if __name__ == "__main__":
    main()
