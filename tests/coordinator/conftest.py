"""Fixtures of several folders."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from coordinator import Coordinator
from tests.coordinator.scheduler.beats import Beats
from tests.harness.hand_node import Puppet, sketch
from tests.harness.installation import Installation
from tests.harness.redis import RedisServer

ClientAt = Callable[..., Coordinator]
FLOOD = 3_000  # jobs


@pytest.fixture
def beats(redis_server: RedisServer, prefix: str) -> Beats:
    return Beats(redis_server, prefix)


@pytest.fixture
def keyed(apps: Installation) -> Any:
    """The module of an app of keyed tasks."""
    return apps.app("keyed")


@pytest.fixture
def client_at(prefix: str) -> Iterator[ClientAt]:
    """Makes plain clients of the test's installation at an address, and closes them at the end."""
    with ExitStack() as stack:
        yield lambda url, **settings: stack.enter_context(Coordinator(url=url, prefix=prefix, **settings))


@pytest.fixture
def other(redis_server: RedisServer, client_at: ClientAt) -> Coordinator:
    """A second plain client."""
    return client_at(redis_server.url(0))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of a pool process."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def flooded(coordinator: Coordinator, node: Puppet) -> Coordinator:
    """Beside the flood: three jobs of a task that no node has, two that need a label, and three behind others."""
    node.lanes.submit_many(sketch(f"flood/{n}") for n in range(FLOOD))
    for key in ("odd/1", "odd/1", "odd/2"):
        node.submit(key, task="shop.gone")
    for key in ("gpu/1", "gpu/2"):
        node.submit(key, needs=["gpu"])
    for _ in range(3):
        node.submit("crowd")
    node.up()  # it has sent no heartbeat for seconds
    return coordinator
