"""Tasks of celery-batches 0.11, of which a worker gathers calls."""

from collections import Counter

from celery_batches import Batches, SimpleRequest

from examples.moving.shop import app
from examples.moving.work import work


@app.task(base=Batches, flush_every=100, flush_interval=10)
def count_clicks(requests: list[SimpleRequest]) -> None:
    for url, clicks in Counter(request.kwargs["url"] for request in requests).items():
        work(f"{url}: {clicks}")
