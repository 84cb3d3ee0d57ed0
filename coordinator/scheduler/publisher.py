"""The connection of a beat to the broker, for the tasks of entries without a key."""

from __future__ import annotations

from functools import cached_property
from typing import cast

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from coordinator.core.broker import one_try


class Publisher:
    """Holds a beat's connection to the broker, and a producer on it for the tasks of entries without a key.

    Each publish tries to connect only once, so that a broker that is down does not delay the entries with a key, which
    need only Redis. RabbitMQ confirms each publish, so that a tick that Redis notes as sent is on the broker.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app

    @cached_property
    def connection(self) -> Connection:
        url = self._app.conf.broker_write_url
        return cast(Connection, self._app.connection(url, transport_options=one_try(url)))

    @cached_property
    def producer(self) -> Producer:
        return cast(Producer, self._app.amqp.Producer(self.connection, auto_declare=False))

    def disconnect(self) -> None:
        """Close the connection to the broker, and drop the producer, so that the next publish makes both anew."""
        vars(self).pop("producer", None)
        if connection := vars(self).pop("connection", None):
            connection.collect()
