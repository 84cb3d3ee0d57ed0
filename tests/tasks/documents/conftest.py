from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.redis import RedisServer
from tests.tasks.documents.replica_set import Residents


@pytest.fixture
def members(redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Residents]:
    """A replica set of threads on the shared Redis; tests/fleet/documents has one of processes."""
    with Residents(redis_server.url(0), prefix, tmp_path / "copies") as started:
        yield started
