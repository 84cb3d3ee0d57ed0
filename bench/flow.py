"""Quotas and fair shares on a real worker with results: how full is a quota, how long does a light tenant wait behind a
flood of long jobs, do weights hold, and how near does a rate come to its number?

`at work` counts bodies that run. The judges read the claims in the records, where fences order them.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import amount
from bench.servers import redis_server, worker

SLOTS = 8
LIMIT, JOBS, HOT, KEYS, SHIFT = amount((3, 100, 28, 10, 0.2), (2, 4, 2, 3, 0.01))
FLOOD, LONG, LIGHT, PAUSE = amount((160, 1.0, 200, 0.05), (10, 0.05, 2, 0.01))
WEIGHT, SPAN = 3, amount(10.0, 0.5)
LENGTHS = amount(((0.1, 0.1), (0.05, 0.15), (0.2, 0.6)), ((0.01, 0.03),))  # of the jobs of the two groups
RATE, STARTS = 100, amount(400, 4)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, redis_server() as url, ExitStack() as stack:
        marks = Path(directory) / "marks"
        marks.touch()
        os.environ |= {"BENCH_REDIS": url, "BENCH_RESULTS": "1", "BENCH_MARKS": str(marks)}
        from bench import app as bench  # the module reads the address of this run's Redis

        stack.enter_context(worker(url, "bench", SLOTS))
        while not bench.coordinator.nodes():
            time.sleep(0.1)
        wait_for(bench, [bench.coordinator.submit(f"warm/{n}", bench.shift.s("", 0.1)) for n in range(2 * SLOTS)])
        limit(bench, marks)
        flood(bench)
        weights(bench)
        rate(bench)


def wait_for(bench: Any, asked: Iterable[Any]) -> list[Any]:
    return [bench.coordinator.wait(one.id) for one in asked]


def limit(bench: Any, marks: Path) -> None:
    """The hot key's jobs stand among the others."""
    bench.coordinator.quota("converter", concurrency=LIMIT)
    hot = [f"{number * JOBS // HOT:05} hot" for number in range(HOT)]
    rest = JOBS - HOT
    cold = [f"{number * JOBS // rest:05} {number % (KEYS - 1)}" for number in range(rest)]
    keys = [one.split()[1] for one in sorted(hot + cold)]
    ways: list[tuple[str, Callable[[int, str], tuple[list[str], dict[str, Any]]]]] = [
        ("a quota", lambda number, key: ([f"page/{key}"], {"uses": "converter"})),
        ("a second key as a line", lambda number, key: ([f"page/{key}", "converter"], {})),
        (f"{LIMIT} such lines, in turns", lambda number, key: ([f"page/{key}", f"converter/{number % LIMIT}"], {})),
    ]
    print(f"{JOBS} jobs of {SHIFT} s over {KEYS} keys, the hot one with {HOT}; at work of {LIMIT}, on average, while")
    for name, of in ways:
        begun = time.monotonic()
        asked = []
        for number, key in enumerate(keys):
            named, options = of(number, key)
            asked.append(bench.coordinator.submit(named, bench.shift.s(key, SHIFT), **options))
        wait_for(bench, asked)
        runs = [(key, float(start), float(end)) for key, start, end in read(marks) if float(start) >= begun]
        assert len(runs) == JOBS, len(runs)
        print(f"  {LIMIT} keys or more wait, with {name:29} {at_work(runs):5.2f}", flush=True)


def read(marks: Path) -> list[list[str]]:
    return [line.split() for line in marks.read_text().splitlines() if len(line.split()) == 3]


def at_work(runs: list[tuple[str, float, float]]) -> float:
    """The bodies at work until the third but last key has ended."""
    last = {key: max(end for other, _, end in runs if other == key) for key, _, _ in runs}
    first, until = min(start for _, start, _ in runs), sorted(last.values())[-LIMIT]
    return sum(max(0.0, min(end, until) - start) for _, start, end in runs) / (until - first)


def flood(bench: Any) -> None:
    """Of a tenant of long jobs, beside one of short ones."""
    light(bench)
    alone, _ = light(bench)
    bench.coordinator.quota("flood", concurrency=SLOTS - 1)
    print(f"a flood of {LONG} s jobs on {SLOTS} slots; a light tenant, one job in {PAUSE} s: ms until its body begins")
    print(f"  alone                    {shown(alone)}", flush=True)
    for name, options in (("behind the flood", {}), (f"with a cap of {SLOTS - 1}", {"uses": "flood"})):
        of = [bench.coordinator.submit(f"flood/{n}", bench.shift.s("flood", LONG), **options) for n in range(FLOOD)]
        time.sleep(LONG / 2)
        waits, jobs = light(bench)
        passed = passed_by(jobs, [bench.coordinator.job(one.id) for one in of])
        cancel(bench, of)
        share = quantile(waits, 0.99) / quantile(alone, 0.99)
        print(f"  {name:24} {shown(waits)}   p99 x {share:.1f}; jobs of the flood started before a ready one: {passed}")


def light(bench: Any) -> tuple[list[float], list[Any]]:
    """How long each job waited until its body began, in ms; and the records."""
    asked, waits = [], []
    for number in range(LIGHT):
        asked.append(bench.coordinator.submit(f"light/{number}", bench.begin.s(time.monotonic())))
        time.sleep(PAUSE)
    jobs = wait_for(bench, asked)
    waits = [1000 * job.result for job in jobs]
    return waits, jobs


def passed_by(jobs: Sequence[Any], others: Sequence[Any]) -> int:
    """A judge: the other jobs that were started while one of these was ready."""
    started = [other for other in others if other.started]
    return sum(any(job.readied < other.started and other.fence < job.fence for job in jobs) for other in started)


def cancel(bench: Any, asked: Sequence[Any]) -> None:
    for one in reversed(asked):
        bench.coordinator.cancel(one.id)
    wait_for(bench, asked)


def weights(bench: Any) -> None:
    """Of two groups, one with jobs that are three times as long."""
    bench.coordinator.weight("gold", WEIGHT)
    for lengths in LENGTHS:
        asked = {}
        for group, length in zip(("gold", "plain"), lengths, strict=True):
            jobs = ((f"{group}/{n}", bench.shift.s("", length)) for n in range(int(1.2 * SPAN * SLOTS / length)))
            asked[group] = bench.coordinator.submit_many(jobs)
        time.sleep(SPAN)
        used, until = {}, bench.coordinator.store.now() / 1000
        for group, of in asked.items():
            used[group] = sum(seconds(bench.coordinator.job(one.id), until - 0.9 * SPAN, until) for one in of)
        for of in asked.values():
            cancel(bench, of)
        ratio, share = used["gold"] / max(used["plain"], 1e-9), sum(used.values()) / (0.9 * SPAN * SLOTS)
        print(f"weights {WEIGHT} : 1, jobs of {lengths[0]} and {lengths[1]} s: {ratio:.2f} : 1 of the slot seconds; "
              f"{share:.0%} of all are used", flush=True)  # fmt: skip


def seconds(job: Any, since: float, until: float) -> float:
    """The seconds of a slot that it used in that time."""
    if not job.started:
        return 0.0
    ended = job.ended.timestamp() if job.ended else until
    return float(max(0.0, min(ended, until) - max(job.started.timestamp(), since)))


def rate(bench: Any) -> None:
    bench.coordinator.quota("api", rate=f"{RATE}/s", burst=1)
    wait_for(bench, [bench.coordinator.submit([], bench.keep.s(""), uses="api")])
    time.sleep(amount(2.0, 0.1))
    asked = [bench.coordinator.submit([], bench.keep.s(""), uses="api") for _ in range(STARTS)]
    began = sorted(job.started.timestamp() for job in wait_for(bench, asked))
    reached = (len(began) - 1) / (began[-1] - began[0])
    most = max(count - RATE * (span + 0.001) for count, span in windows(began))
    print(f"a rate of {RATE}/s with burst 1 reaches {reached:.1f}/s; in any window {RATE} x its seconds + {most:.1f}")


def windows(began: Sequence[float]) -> Iterable[tuple[int, float]]:
    """Of all windows that begin and end with a start: how many starts, and how long."""
    for first, since in enumerate(began):
        for last in range(first, len(began)):
            yield last - first + 1, began[last] - since


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def shown(waits: Sequence[float]) -> str:
    return f"median {statistics.median(waits):6.1f}, p99 {quantile(waits, 0.99):6.1f}"


if __name__ == "__main__":
    main()
