"""Replica sets of processes: below this folder only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.members import Members
from tests.harness.redis import RedisServer


@pytest.fixture
def members(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Members]:
    """A replica set on the shared Redis."""
    with Members(redis_server.url(0), prefix, tmp_path / "copies") as started:
        yield started


@pytest.fixture
def apart(own_redis: RedisServer, tmp_path: Path) -> Iterator[Members]:
    """A replica set whose Redis may be killed, emptied and set back."""
    with Members(own_redis.url(0), "apart", tmp_path / "copies") as started:
        yield started
