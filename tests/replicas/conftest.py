"""Fixtures: a replica set on the shared Redis, and one on a Redis of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replicas.members import Members
from tests.servers import RedisServer


@pytest.fixture
def members(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Members]:
    with Members(redis_server.url(0), prefix, tmp_path / "copies") as started:
        yield started


@pytest.fixture
def apart(own_redis: RedisServer, tmp_path: Path) -> Iterator[Members]:
    """Their Redis may be killed, emptied and set back."""
    with Members(own_redis.url(0), "apart", tmp_path / "copies") as started:
        yield started
