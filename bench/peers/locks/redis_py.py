from contextlib import AbstractContextManager
from typing import Any

import redis

from bench.peers import body

client = redis.Redis.from_url(f"{body.URL}/0")


def lock(name: str) -> AbstractContextManager[Any]:
    return client.lock(name, timeout=30)
