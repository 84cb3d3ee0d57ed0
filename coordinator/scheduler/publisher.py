"""A beat's own connection to the broker, for ordinary tasks."""

from __future__ import annotations

from functools import cached_property
from typing import cast

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from coordinator.broker import one_try


class Publisher:
    """A producer that tries to connect once for each publish, so that keyed entries need not wait for the broker.

    RabbitMQ confirms each publish: a tick that Redis notes as sent is on the broker.
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
        """Drop the connection, so that the next publish connects anew; a closed connection does not do so by itself."""
        vars(self).pop("producer", None)
        if connection := vars(self).pop("connection", None):
            connection.collect()
