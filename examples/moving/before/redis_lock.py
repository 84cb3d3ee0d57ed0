"""A task that guards its work by redis-py's lock: each call that waits occupies a process of the worker."""

from redis import Redis

from examples.moving.shop import REDIS, app
from examples.moving.work import work

client = Redis.from_url(f"{REDIS}/3")


@app.task
def count(stock: str, shelf: str, seconds: float = 60) -> str:
    with client.lock(f"stock/{stock}", timeout=seconds, blocking_timeout=300):
        return work(f"{stock}/{shelf}")
