"""What does a job, a lane, a node and a connection cost, and so what does a load need? Two tables.

`--write` puts them into docs/capacity.md. Processor times are those that the system counts; a busy machine adds to
them. Memory of processes is their proportional share (PSS).
"""

import argparse
import os
import re
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import redis

from bench import amount
from bench.idle_cpu import kind_of
from bench.servers import celery, family, redis_server
from bench.size import drain, fill, register, weight
from tests.harness.waiting import wait_until

PAGE = Path(__file__).parents[1] / "docs" / "capacity.md"
TABLES = re.compile(r"(?<=<!-- the tables begin -->\n).*(?=<!-- the tables end -->)", re.DOTALL)
JOBS, LANES, SETTLE, SECONDS, SLOTS = amount((5_000, 20_000, 15.0, 30.0, 4), (4, 4, 0.0, 0.1, 1))
HARVEST = 0.050  # seconds of a processor for the harvest of one member, from `bench.members`
LOADS = (
    ("a million jobs a day", 10**6, 0.0),
    ("ten million jobs a day", 10**7, 0.0),
    ("1,000 members, each once a minute", 1_000 * 1440, HARVEST),
    ("10,000 members, each once in 10 minutes", 10_000 * 144, HARVEST),
    ("10,000 members, each once a minute", 10_000 * 1440, HARVEST),
)


class Figures(NamedTuple):
    """Bytes, seconds of a processor; `processes`: for each kind its number, bytes, connections, and idle share."""

    waits: float
    lane: float
    kept: float
    in_redis: float
    in_nodes: float
    processes: dict[str, tuple[int, float, float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity")
    parser.add_argument("--write", action="store_true")
    with redis_server("--appendonly", "yes") as url, ExitStack() as stack:
        os.environ["BENCH_REDIS"] = url
        from bench import app as bench  # the module reads the address of this run's Redis

        found = "\n".join(tables(measured(bench, url, stack)))
    print(found)
    if parser.parse_args().write:
        PAGE.write_text(TABLES.sub(lambda _: f"\n{found}\n\n", PAGE.read_text()))


def measured(bench: Any, url: str, stack: ExitStack) -> Figures:
    client = bench.coordinator.store._client
    register(bench)
    waits = weight(bench)
    before = memory(client)
    fill(bench, LANES)
    lane = (memory(client) - before) / LANES - waits
    before = memory(client)
    drain(bench, JOBS)
    kept = (memory(client) - before) / JOBS
    client.flushall()
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    worker = stack.enter_context(celery(url, "bench.app", "worker", "-n", "one@bench", "-c", str(SLOTS)))
    scheduler = ("-S", "coordinator.scheduler.Scheduler", "-s", f"{folder}/last", "--pidfile=")
    beat = stack.enter_context(celery(url, "bench.app", "beat", *scheduler))
    wait_until(bench.coordinator.nodes, 60)
    work(bench)  # each pool process has its connections then
    time.sleep(SETTLE)
    port = int(url.rpartition(":")[2])
    idle = processes(worker.pid, beat.pid, port)
    before, used = seconds(client), spent(worker.pid)
    work(bench)
    return Figures(waits, lane, kept, (seconds(client) - before) / JOBS, (spent(worker.pid) - used) / JOBS, idle)


def work(bench: Any) -> None:
    """Jobs in a hundred lanes, submitted one by one."""
    last = [bench.coordinator.submit(f"lane/{number % 100}", bench.keep.s("x" * 100)) for number in range(JOBS)]
    for one in last[-100:]:
        bench.coordinator.wait(one.id, 100)


def memory(client: redis.Redis) -> int:
    info: Any = client.info("memory")
    return int(info["used_memory"])


def seconds(client: redis.Redis) -> float:
    info: Any = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def spent(pid: int) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in family(pid))


def processes(worker: int, beat: int, port: int) -> dict[str, tuple[int, float, float, float]]:
    """By kind of process, in a span without jobs: their number, and the memory, connections and load of each."""
    every = {process: name(process, worker) for process in (*family(worker), *family(beat))}
    before = {process: sum(process.cpu_times()[:2]) for process in every}
    time.sleep(SECONDS)
    number, size, open_to, load = Counter[str](), Counter[str](), Counter[str](), defaultdict[str, float](float)
    for process, kind in every.items():
        number[kind] += 1
        size[kind] += process.memory_full_info().pss
        open_to[kind] += sum(bool(one.raddr) and one.raddr.port == port for one in process.net_connections("tcp"))
        load[kind] += (sum(process.cpu_times()[:2]) - before[process]) / SECONDS
    return {kind: (n, size[kind] / n, open_to[kind] / n, load[kind] / n) for kind, n in sorted(number.items())}


def name(process: psutil.Process, worker: int) -> str:
    kind = kind_of(process.cmdline())
    return ("worker, main process" if process.pid == worker else "worker, pool process") if kind == "worker" else kind


def tables(found: Figures) -> list[str]:
    load = os.getloadavg()[0]
    return [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} shared cores, at a load of {load:.1f}.",
        "",
        "| what | costs |",
        "|---|---|",
        f"| a job that waits, with 100 bytes of arguments | {found.waits:,.0f} bytes of Redis |",
        f"| a lane of its own for it | {found.lane:,.0f} bytes of Redis |",
        f"| a job that succeeded, while it is kept | {found.kept:,.0f} bytes of Redis |",
        f"| a job from its submit to its end | {found.in_redis * 1e6:,.0f} us of Redis' processor |",
        f"| the same on the node, beside the body | {found.in_nodes * 1e6:,.0f} us of a processor |",
        "",
        f"| process | of a node of {SLOTS} slots | memory of each | connections to Redis | processor while idle |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} | {number} | {size / 2**20:.0f} MB | {links:.1f} | {share:.2%} |"
            for kind, (number, size, links, share) in found.processes.items()
        ),
        "",
        "| load | jobs a second | Redis' one thread: mean · ten times that | kept for an hour | nodes' processors |",
        "|---|---|---|---|---|",
        *(row(found, *load) for load in LOADS),
    ]


def row(found: Figures, what: str, jobs: int, body: float) -> str:
    rate = jobs / 86400
    busy = rate * found.in_redis
    burst = f"{10 * busy:.0%}" if busy < 0.1 else "more than one has"
    cores = rate * (found.in_nodes + body)
    kept = f"{rate * 3600 * found.kept / 2**20:,.0f} MB"
    of_body = "" if body else " and the bodies'"
    return f"| {what} | {rate:,.0f} | {busy:.1%} · {burst} | {kept} | {cores:.2f}{of_body} |"


if __name__ == "__main__":
    main()
