from contextlib import AbstractContextManager
from typing import Any

import redis
from pottery import Redlock

from bench.peers import body

client = redis.Redis.from_url(f"{body.URL}/0")


def lock(name: str) -> AbstractContextManager[Any]:
    return Redlock(key=name, masters={client}, auto_release_time=30)
