"""celery-once. It refuses a duplicate, so each job is unique by its key and its number."""

from celery_once import QueueOnce

from bench.peers import body
from bench.peers.adapters import celery_app

app = celery_app.make(
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": f"{body.URL}/3", "default_timeout": 3600}}
)
WORKER = celery_app.worker(__name__)
PORTION = celery_app.PORTION


@app.task(base=QueueOnce, once={"keys": ["key", "number"]})
def work(key: int, number: int) -> None:
    body.run()


def send(jobs: list[tuple[int, int]]) -> None:
    celery_app.send(app, work, jobs)
