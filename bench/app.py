"""The app of the benchmarks: a task that counts, as an ordinary task and as a keyed job; and one that does nothing."""

import os
import time

import redis
from celery import Celery

from coordinator import Coordinator
from coordinator.attempt import Tracers
from coordinator.events import Events
from coordinator.nodes import Nodes
from coordinator.runner import Runner

__all__ = ["Nodes", "app", "coordinator", "count", "counter", "keep", "runner"]

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")

app = Celery("bench", broker=f"{URL}/1")
app.conf.update(
    task_ignore_result=True, worker_prefetch_multiplier=64, worker_disable_prefetch=False, coordinator_url=f"{URL}/0"
)
coordinator = Coordinator(app)
counter = redis.Redis.from_url(f"{URL}/2")


@app.task
def count() -> None:
    counter.incr("done")


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
