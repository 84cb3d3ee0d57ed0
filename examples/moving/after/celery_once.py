"""The same tasks in lanes, and the one between: it keeps celery-once's lock while old processes still run."""

from celery_once import QueueOnce

from examples.moving.shop import app
from examples.moving.work import work


@app.task(coordinate={"key": "report once/{customer}", "when_busy": "skip", "on_skip": "raise"})
def report(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(coordinate={"key": "export/{customer}", "when_busy": "skip"})
def export(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(coordinate={"key": "index/{customer}", "when_busy": "defer"})
def index(customer: str) -> str:
    return work(customer)


@app.task(
    base=QueueOnce, once={"keys": ["customer"], "timeout": 3600},
    coordinate={"key": "invoice once/{customer}", "when_busy": "skip", "on_skip": "raise"},
)  # fmt: skip
def invoice(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")
