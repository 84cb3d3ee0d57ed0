"""Fleets of real workers: below this folder only. A test that is marked `broker` runs on both brokers:
its fleet has Redis first, then RabbitMQ.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("broker") and "rabbitmq" not in metafunc.definition.nodeid.split("/"):
        metafunc.parametrize("rabbitmq", ["redis", "rabbitmq"], indirect=True, scope="function")


@pytest.fixture
def rabbitmq(request: pytest.FixtureRequest) -> Broker | None:
    """None where the broker is Redis."""
    if getattr(request, "param", "redis") == "redis":
        return None
    server = request.getfixturevalue("rabbitmq_server")
    return Broker(server, server.vhost())


@pytest.fixture
def fleet(redis_server: RedisServer, rabbitmq: Broker | None, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers of `tests.harness.apps.shop` and its app, on the shared Redis."""
    with Fleet(redis_server, prefix, tmp_path, rabbitmq) as started:
        yield started
