"""Fleets with a RabbitMQ between their nodes. All tests of this folder run in one process, on one server."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import RabbitServer
from tests.harness.redis import RedisServer


class Broker(NamedTuple):
    """A vhost for one test."""

    server: RabbitServer
    vhost: str

    @property
    def url(self) -> str:
        return self.server.url(self.vhost)

    def queues(self) -> set[str]:
        return self.server.queues(self.vhost)


@pytest.fixture
def rabbitmq(rabbitmq_server: RabbitServer) -> Broker:
    return Broker(rabbitmq_server, rabbitmq_server.vhost())


@pytest.fixture
def fleet(redis_server: RedisServer, rabbitmq: Broker, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    """As anywhere below tests/fleet, but for the broker."""
    with Fleet(redis_server, prefix, tmp_path) as started:
        started.environ["TEST_BROKER"] = rabbitmq.url
        yield started
