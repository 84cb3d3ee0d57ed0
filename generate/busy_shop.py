"""The app of which generate/screenshots.py makes pictures: a shop whose fleet is busy."""

import os
import random
import time

from celery import Celery

from coordinator import Coordinator, current_job

app = Celery("shop", broker=os.environ["SHOP_BROKER"])
coordinator = Coordinator(app)


@app.task(name="shop.ship")
def ship(order: int, carrier: str = "post") -> str:
    time.sleep(random.uniform(0.05, 0.4))
    return f"{order} by {carrier}"


@app.task(name="shop.charge")
def charge(order: int) -> str:
    time.sleep(random.uniform(0.02, 0.2))
    if order % 17 == 0:
        raise ConnectionError("the bank does not answer")
    return f"charged {order}"


@app.task(name="shop.count")
def count(shelf: str, items: int = 400) -> int:
    job = current_job()
    for done in range(items):
        time.sleep(0.25)
        if job:
            job.progress(done, items)
    return items


@app.task(name="shop.print_label")
def print_label(order: int) -> int:
    return order
