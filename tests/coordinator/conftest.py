"""Fixtures of several folders."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import Coordinator
from tests.coordinator.scheduler.beats import Beats
from tests.harness.installation import Installation
from tests.harness.redis import RedisServer


@pytest.fixture
def beats(redis_server: RedisServer, prefix: str) -> Beats:
    return Beats(redis_server, prefix)


@pytest.fixture
def keyed(apps: Installation) -> Any:
    """The module of an app of keyed tasks."""
    return apps.app("keyed")


@pytest.fixture
def other(redis_server: RedisServer, prefix: str) -> Iterator[Coordinator]:
    """A second plain client."""
    client = Coordinator(url=redis_server.url(0), prefix=prefix)
    yield client
    client.store.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of a pool process."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()
