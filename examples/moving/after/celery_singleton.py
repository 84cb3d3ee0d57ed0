"""The same tasks in lanes, and the one between: it keeps celery-singleton's lock while old processes still run."""

from celery.app.task import Task
from celery_singleton import Singleton

from examples.moving.shop import app
from examples.moving.work import work


@app.task(coordinate={"key": "report/{customer}", "when_busy": "skip"})
def report(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(bind=True, max_retries=1, coordinate={"key": "fetch/{customer}", "when_busy": "skip"})
def fetch(self: Task, customer: str) -> int:
    """Tries itself again once."""
    if not self.request.retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task(
    base=Singleton, unique_on=["customer"], lock_expiry=3600,
    coordinate={"key": "invoice/{customer}", "when_busy": "skip"},
)  # fmt: skip
def invoice(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")
