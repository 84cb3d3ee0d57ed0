from contextlib import AbstractContextManager
from typing import Any

import redis
import redis_lock

from bench.peers import body

client = redis.Redis.from_url(f"{body.URL}/0")


def lock(name: str) -> AbstractContextManager[Any]:
    return redis_lock.Lock(client, name, expire=30)
