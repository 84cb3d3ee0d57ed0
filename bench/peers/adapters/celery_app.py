"""What the peers on Celery share: an app for many short tasks, as Celery's page on optimizing has it."""

from typing import Any

from celery import Celery

from bench.peers import body

PORTION = 100


def make(**settings: Any) -> Celery:
    app = Celery("peers", broker=f"{body.URL}/1")
    app.conf.update(task_ignore_result=True, worker_concurrency=2, worker_prefetch_multiplier=64, **settings)
    return app


def worker(module: str) -> tuple[str, ...]:
    return ("celery", "-A", module, "worker", "-l", "ERROR", "--without-mingle", "--without-gossip")


def send(app: Celery, task: Any, jobs: list[tuple[int, int]]) -> None:
    """One by one, since Celery has no bulk; all through one producer, since that spares the pool's work."""
    with app.producer_pool.acquire(block=True) as producer:
        for job in jobs:
            task.apply_async(job, producer=producer)
