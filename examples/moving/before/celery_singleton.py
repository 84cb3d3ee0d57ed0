"""Tasks of celery-singleton 0.3: one call at a time of each customer, the others are given its result."""

from celery.app.task import Task
from celery_singleton import Singleton

from examples.moving.shop import app
from examples.moving.work import work


@app.task(base=Singleton, unique_on=["customer"], lock_expiry=3600)
def report(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(base=Singleton, bind=True, max_retries=1)
def fetch(self: Task, customer: str) -> int:
    """Tries itself again once."""
    if not self.request.retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)
