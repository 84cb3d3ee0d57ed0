"""celery-singleton. It drops a duplicate, so each job is unique by its key and its number."""

from celery_singleton import Singleton

from bench.peers import body
from bench.peers.adapters import celery_app

app = celery_app.make()
WORKER = celery_app.worker(__name__)
PORTION = celery_app.PORTION


@app.task(base=Singleton, unique_on=["key", "number"])
def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    celery_app.send(app, work, jobs)
