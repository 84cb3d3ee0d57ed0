"""Tasks of celery-once 3.0: one call at a time of each customer, the others are refused."""

from celery_once import QueueOnce

from examples.moving.shop import app
from examples.moving.work import work


@app.task(base=QueueOnce, once={"keys": ["customer"], "timeout": 3600})
def report(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(base=QueueOnce, once={"keys": ["customer"], "graceful": True})
def export(customer: str, month: str) -> str:
    return work(f"{customer}/{month}")


@app.task(base=QueueOnce, once={"keys": ["customer"], "unlock_before_run": True})
def index(customer: str) -> str:
    return work(customer)
