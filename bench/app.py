"""The app of the benchmarks: tasks that run as ordinary tasks and as keyed jobs."""

import os
import time
from functools import cache

import redis
from celery import Celery

from coordinator import Coordinator
from coordinator.attempt import Tracers
from coordinator.events import Events
from coordinator.nodes import Nodes
from coordinator.runner import Runner

__all__ = ["Nodes", "app", "coordinator", "count", "counter", "keep", "mark", "runner"]

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")

app = Celery("bench", broker=f"{URL}/1")
app.conf.update(
    task_ignore_result=True, worker_prefetch_multiplier=64, worker_disable_prefetch=False, coordinator_url=f"{URL}/0"
)
coordinator = Coordinator(app)
counter = redis.Redis.from_url(f"{URL}/2")
marks = os.open(os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND)


@cache
def counting(process: int) -> redis.Connection:
    """This process's own connection for `count`, without what a general client does around each command."""
    return counter.connection_pool.make_connection()


@app.task
def count() -> None:
    """One round trip to Redis."""
    connection = counting(os.getpid())
    connection.send_command("INCR", "done", check_health=False)
    connection.read_response()


@app.task
def mark() -> None:
    """A trace and next to no work: one byte, appended to a file."""
    os.write(marks, b".")


@app.task
def keep(text: str) -> None:
    """Nothing: what is left is the coordinator's own cost."""


def runner(node: str, slice: float = 1e9) -> Runner:
    """A runner in this process whose slice never ends, or after so many seconds."""
    coordinator.settings.__dict__["slice"] = slice
    return Runner(app, coordinator.core, node, coordinator.incarnation, Tracers(app, node), Events(app, node))


@app.task
def toil(times: int) -> None:
    """So many short sleeps: a process that is stopped again and again does fewer of them."""
    for _ in range(times):
        time.sleep(0.01)


@app.task
def hold(name: str) -> None:
    """Says when it began, by Redis's clock, and goes on until it is let go."""
    whole, micro = counter.time()
    counter.rpush(f"began:{name}", whole * 1_000_000 + micro)
    counter.blpop([f"go:{name}"], 600)
