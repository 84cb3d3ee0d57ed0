"""What JobScheduler's resource lock provider and sorter do: whole chains one after another, in the order of names."""

from celery import chain

from coordinator import Submission
from examples.moving.shop import app, coordinator
from examples.moving.work import work

RESOURCE = "database/stock"


@app.task
def fetch(order: str) -> str:
    work(f"{order} fetched")
    return order


@app.task
def store(order: str) -> str:
    return work(f"{order} stored")


@app.task
def summary() -> str:
    return work("summary")


def load(order: str) -> Submission:
    """One job chain; it holds the resource from its first step to its last."""
    return coordinator.submit(RESOURCE, chain(fetch.s(order), store.s()), job_id=order)


def report() -> Submission:
    """Another one, over the same resource."""
    return coordinator.submit(RESOURCE, summary.s())


sorter = coordinator.sorter("stock orders", idle_timeout=10, order="alphabetical")


def arrived(order: str) -> Submission:
    """An order of the sorter: it stands in line once none has come for 10 s."""
    return sorter.add(order, RESOURCE, chain(fetch.s(order), store.s()))
