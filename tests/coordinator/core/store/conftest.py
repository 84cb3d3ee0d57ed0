from collections.abc import Iterator

import pytest

from coordinator.core.store.client import Store
from tests.coordinator.core.store.stores import store_of
from tests.harness.redis import RedisServer


@pytest.fixture
def store(own_redis: RedisServer) -> Iterator[Store]:
    """On a server that may be killed and restarted."""
    made = store_of(own_redis.url(0), timeout=1.0)
    yield made
    made.close()
