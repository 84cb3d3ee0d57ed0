"""Fleets of real workers: below this folder only, and in the soak."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer


@pytest.fixture
def fleet(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers of `tests.harness.apps.shop` and its app, on the shared Redis."""
    with Fleet(redis_server, prefix, tmp_path) as started:
        yield started
