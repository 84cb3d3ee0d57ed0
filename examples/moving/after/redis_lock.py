"""The same work in a lane, by a lock in plain code, and by both locks while old processes still run."""

from redis import Redis

from examples.moving.shop import REDIS, app, coordinator
from examples.moving.work import work

client = Redis.from_url(f"{REDIS}/3")


@app.task(coordinate={"key": "stock/{stock}"})
def count(stock: str, shelf: str) -> str:
    return work(f"{stock}/{shelf}")


def count_here(stock: str, shelf: str) -> tuple[str, int]:
    """In any process, without Celery: what was done, and the fence."""
    with coordinator.lock(f"stock/{stock}", ttl=30, blocking_timeout=300) as lease:
        done = work(f"{stock}/{shelf}")
        lease.check()  # LeaseLost: somebody else may have it by now, so write nothing
        return done, lease.fence


@app.task(coordinate={"key": "stock/{stock}"})
def count_between(stock: str, shelf: str) -> str:
    with client.lock(f"stock/{stock}", timeout=60, blocking_timeout=300):
        return work(f"{stock}/{shelf}")
