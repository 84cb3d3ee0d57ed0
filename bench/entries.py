"""How late does a beat send the ticks of 100,000 entries, each due once in three minutes, and what does it cost?

The entries are stored in Redis and spread over the seconds. Nothing runs the jobs. Beside it stands celery-redbeat with
as many entries, spread in the same way, whose ordinary tasks it publishes to the same Redis.

`--entries=100000 --seconds=180 --beats=1`
"""

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psutil
import redis
from celery import Celery

from bench import amount
from bench.peers.environments import interpreter
from bench.servers import celery, redis_server
from coordinator import Coordinator, Entry

EVERY = 180
URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")

app = Celery("bench_entries", broker=f"{URL}/1")
app.conf.update(coordinator_url=f"{URL}/0", coordinator_keep_success=60)
coordinator = Coordinator(app)


@app.task
def nothing() -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=amount(100_000, EVERY))
    parser.add_argument("--seconds", type=float, default=amount(EVERY, 6))
    parser.add_argument("--beats", type=int, default=1)
    parser.add_argument("--redbeat", type=int, default=amount(10_000, 0), help="entries for redbeat; 0: without it")
    asked = parser.parse_args()
    print(f"{asked.entries} entries, {asked.entries / EVERY:.0f} a second, {asked.beats} beats, {asked.seconds:.0f} s")
    report("ours", *ours(asked.entries, asked.seconds, asked.beats))
    if asked.redbeat:
        print(f"{asked.redbeat} entries for redbeat")
        report("ours", *ours(asked.redbeat, asked.seconds, 1))
        report("redbeat", *redbeat(asked.redbeat, asked.seconds))


def report(name: str, late: list[float], missing: int, share: float, server: float) -> None:
    late.sort()
    p99 = late[int(len(late) * 0.99)] if late else float("nan")
    middle = statistics.median(late) if late else float("nan")
    told = f"late p50 {middle * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, at most {late[-1] * 1000:.0f} ms" if late else ""
    print(
        f"{name:8} {len(late)} ticks, {missing} missing, {told}; a beat {share:.1f} %, Redis {server:.1f} % of a core"
    )


def ours(entries: int, seconds: float, beats: int) -> tuple[list[float], int, float, float]:
    with redis_server() as url:
        os.environ["BENCH_REDIS"] = url
        app.conf.coordinator_url = f"{url}/0"
        here = Coordinator(url=f"{url}/0")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(here.entries.put, made(entries), chunksize=200))
        argv = "beat", "-S", "coordinator.scheduler.Scheduler", "--pidfile="
        with ExitStack() as stack:
            pids = [stack.enter_context(celery(url, "bench.entries", *argv)).pid for _ in range(beats)]
            settle(lambda: here.counts()["created"])
            shares, server, begun = measured(url, pids, seconds)
        return *lateness(here, begun, seconds, entries), statistics.mean(shares), server


def made(entries: int) -> Iterator[Entry]:
    for number in range(entries):
        at = number % EVERY
        when = f"{at % 60} {at // 60}/3 * * * ?"
        yield Entry(
            f"e{number}",
            when,
            "bench.entries.nothing",
            key=f"k/{number}",
            when_busy="skip",
            submit={"if_unknown": "wait"},
        )


def settle(ready: Callable[[], object]) -> None:
    """Wait until the beat sends, and then as long again as its start took."""
    began = time.monotonic()
    while not ready():
        time.sleep(0.2)
    time.sleep(max(5.0, time.monotonic() - began))


def measured(url: str, pids: list[int], seconds: float) -> tuple[list[float], float, float]:
    """Per cent of a core of each beat and of Redis, and when the measurement began, by Redis' clock."""
    server = redis.Redis.from_url(f"{url}/0")
    beats = [psutil.Process(pid) for pid in pids]
    before = [used(one) for one in beats]
    redis_before = redis_used(server)
    begun, then = float(server.time()[0]), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - then
    shares = [(used(one) - spent) / passed * 100 for one, spent in zip(beats, before, strict=True)]
    return shares, (redis_used(server) - redis_before) / passed * 100, begun


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def redis_used(server: redis.Redis) -> float:
    told = server.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def lateness(here: Coordinator, begun: float, seconds: float, entries: int) -> tuple[list[float], int]:
    """Seconds by which each tick of the measurement was late, and how many instants have no tick."""
    store, late = here.store, []
    for start in range(0, entries, 1000):
        pipeline = store._client.pipeline(transaction=False)
        for number in range(start, min(entries, start + 1000)):
            pipeline.lrange(store.key("ticks", f"e{number}"), 0, -1)
        for lines in pipeline.execute():
            for line in lines:
                at, took = line.split(b" ", 2)[:2]
                if begun <= int(at) / 1000 < begun + seconds - 5:
                    late.append(int(took) / 1000)
    return late, round(entries * (seconds - 5) / EVERY) - len(late)


def redbeat(entries: int, seconds: float) -> tuple[list[float], int, float, float]:
    python = str(interpreter("redbeat", ("celery-redbeat==2.4.2", "celery[redis]>=5.4,<5.7")))
    with redis_server() as url:
        own = os.environ | {"BENCH_REDIS": url, "PYTHONPATH": os.getcwd()}
        subprocess.run([python, "-m", "bench.peers.redbeat_app", str(entries), str(EVERY)], env=own, check=True)
        argv = [
            python,
            "-m",
            "celery",
            "-A",
            "bench.peers.redbeat_app",
            "beat",
            "-S",
            "redbeat.RedBeatScheduler",
            "--pidfile=",
        ]
        process = subprocess.Popen(argv, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = redis.Redis.from_url(f"{url}/1")
        try:
            settle(lambda: server.llen("celery"))
            server.delete("celery")
            (share,), used_by_redis, _ = measured(url, [process.pid], seconds)
            # Its entries say when they are due next only after they were sent: how late they were is not known.
            return [], round(entries * seconds / EVERY) - server.llen("celery"), share, used_by_redis
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
