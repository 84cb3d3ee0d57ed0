"""The app of the benchmarks: tasks that run as ordinary tasks and as keyed jobs."""

import asyncio
import os
import time
from functools import cache

import redis
from celery import Celery

from coordinator import Coordinator
from coordinator.core.fleet.nodes import Nodes
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.runner.runner import Runner, RunnerServices, WorkerContext

__all__ = [
    "Nodes",
    "app",
    "coordinator",
    "count",
    "count_async",
    "counter",
    "forget_results",
    "keep",
    "mark",
    "mark_async",
    "rest",
    "rest_async",
    "runner",
    "stamp",
    "stored",
]

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")

WITH_RESULTS = bool(os.environ.get("BENCH_RESULTS"))

app = Celery("bench", broker=os.environ.get("BENCH_BROKER", f"{URL}/1"), backend=f"{URL}/3" if WITH_RESULTS else None)
app.conf.update(task_ignore_result=not WITH_RESULTS, coordinator_url=f"{URL}/0")
coordinator = Coordinator(app)
counter = redis.Redis.from_url(f"{URL}/2")
kept = redis.Redis.from_url(f"{URL}/3")
marks = os.open(os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND)


def stored() -> int:
    """The number of results in the backend."""
    return int(kept.dbsize())


def forget_results() -> None:
    kept.flushdb()


@cache
def counting(process: int) -> redis.Connection:
    """This process's own connection for `count`, without the overhead of a general client for each command."""
    return counter.connection_pool.make_connection()


@app.task
def count() -> None:
    """One round trip to Redis."""
    connection = counting(os.getpid())
    connection.send_command("INCR", "done", check_health=False)
    connection.read_response()


@app.task
def mark() -> None:
    """Append one byte to a file: a trace at hardly any cost."""
    os.write(marks, b".")


@app.task
async def count_async() -> None:
    connection = counting(os.getpid())
    connection.send_command("INCR", "done", check_health=False)
    connection.read_response()


@app.task
async def mark_async() -> None:
    os.write(marks, b".")


@app.task
def rest() -> None:
    """Wait for 5 ms, as for another service, and leave a byte."""
    time.sleep(0.005)
    os.write(marks, b".")


@app.task
async def rest_async() -> None:
    await asyncio.sleep(0.005)
    os.write(marks, b".")


@app.task
def stamp(sent: float) -> None:
    """Note when the task was sent, began and ended."""
    began = time.monotonic()
    os.write(marks, f"{sent:.6f} {began:.6f} {time.monotonic():.6f}\n".encode())


@app.task
def keep(text: str) -> None:
    """Do nothing, to measure the coordinator's own cost alone."""


def runner(node: str, slice: float = 1e9) -> Runner:
    """A runner in this process, for the bell `bell`. Its slice ends after so many seconds, or never."""
    coordinator.store._client.zadd(coordinator.store.key("rung", node), {"bell": 2**53})
    coordinator.settings.__dict__["slice"] = slice
    context = WorkerContext(node, coordinator._core, coordinator._incarnation, StatusFile.open())
    return Runner(app, context, RunnerServices(app, context))


@app.task
def toil(times: int) -> None:
    """Sleep many times for a short while. A process that is often stopped sleeps fewer times in the same time."""
    for _ in range(times):
        time.sleep(0.01)


@app.task
def hold(name: str) -> None:
    """Note the time of the start by Redis's clock, then wait for the signal to end."""
    whole, micro = counter.time()
    counter.rpush(f"began:{name}", whole * 1_000_000 + micro)
    counter.blpop([f"go:{name}"], 600)


@app.task
def shift(name: str, seconds: float) -> None:
    """Sleep, and note the begin and the end by the machine's clock."""
    began = time.monotonic()
    time.sleep(seconds)
    os.write(marks, f"{name} {began:.6f} {time.monotonic():.6f}\n".encode())


@app.task
def begin(sent: float) -> float:
    """The seconds since the job was sent."""
    return time.monotonic() - sent
