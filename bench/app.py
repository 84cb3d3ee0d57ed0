"""The app of the benchmarks: tasks that run as ordinary tasks and as keyed jobs."""

import os
import time
from functools import cache

import redis
from celery import Celery

from coordinator import Coordinator
from coordinator.fleet.board import Board
from coordinator.fleet.nodes import Nodes
from coordinator.runner.runner import Place, Runner, Tools

__all__ = [
    "Nodes",
    "app",
    "coordinator",
    "count",
    "counter",
    "forget_results",
    "keep",
    "mark",
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
    """How many results are in the backend."""
    return int(kept.dbsize())


def forget_results() -> None:
    kept.flushdb()


@cache
def counting(process: int) -> redis.Connection:
    """This process's own connection for `count`. It spares the work of a general client around each command."""
    return counter.connection_pool.make_connection()


@app.task
def count() -> None:
    """One round trip to Redis."""
    connection = counting(os.getpid())
    connection.send_command("INCR", "done", check_health=False)
    connection.read_response()


@app.task
def mark() -> None:
    """Append one byte to a file: a trace, and hardly any work."""
    os.write(marks, b".")


@app.task
def stamp(sent: float) -> None:
    """Note when this was sent, began and ended."""
    began = time.monotonic()
    os.write(marks, f"{sent:.6f} {began:.6f} {time.monotonic():.6f}\n".encode())


@app.task
def keep(text: str) -> None:
    """Do nothing, so that only the coordinator's own cost is left."""


def runner(node: str, slice: float = 1e9) -> Runner:
    """A runner in this process, for the bell `bell`. Its slice ends after so many seconds, or never."""
    coordinator.store._client.zadd(coordinator.store.key("rung", node), {"bell": 2**53})
    coordinator.settings.__dict__["slice"] = slice
    place = Place(node, coordinator._core, coordinator._incarnation, Board.open())
    return Runner(app, place, Tools(app, place))


@app.task
def toil(times: int) -> None:
    """Sleep so many times for a short while. A process that is often stopped sleeps less often in the same time."""
    for _ in range(times):
        time.sleep(0.01)


@app.task
def hold(name: str) -> None:
    """Note the time of the start by Redis's clock, then wait for the signal to end."""
    whole, micro = counter.time()
    counter.rpush(f"began:{name}", whole * 1_000_000 + micro)
    counter.blpop([f"go:{name}"], 600)
