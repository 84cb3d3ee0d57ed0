"""Fleets with a RabbitMQ between their nodes. All tests of this folder run in one process, on one server."""

import pytest

from tests.harness.rabbitmq import Broker, RabbitServer


@pytest.fixture
def rabbitmq(rabbitmq_server: RabbitServer) -> Broker:
    """A vhost for one test, and so the broker of its fleet."""
    return Broker(rabbitmq_server, rabbitmq_server.vhost())
