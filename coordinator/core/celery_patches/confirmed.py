"""Publishes with RabbitMQ's publisher confirms, for messages that are not sent again if the broker loses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from celery import Celery
from kombu.messaging import Producer
from kombu.pools import producers

from coordinator.core.broker import is_amqp, one_try

_WAIT = 5  # seconds to wait for a free producer, and for a connection

# The `retry_policy` for publishes with these producers: two tries, since a connection may have been lost
# while it lay in the pool.
TWICE = {"max_retries": 1, "interval_start": 0}


@contextmanager
def confirmed(app: Celery) -> Iterator[Producer]:
    """Yield a producer whose `publish` returns only when RabbitMQ has confirmed the message, which for a durable queue
    is then on disk. `publish` raises if no confirm comes within some seconds; the message may still arrive.

    For any other broker, yields a producer of the app's own pool: a publish to Redis waits for the reply anyway.
    """
    url = app.conf.broker_write_url
    if not is_amqp(url):
        with app.producer_pool.acquire(block=True, timeout=_WAIT) as producer:
            yield producer
        return
    connection = app.connection_for_write(connect_timeout=_WAIT, transport_options=one_try(url))
    with producers[connection].acquire(block=True, timeout=_WAIT) as producer:
        try:
            yield producer
        except Exception:
            producer.connection.collect()  # close the connection: a late confirm would count for the next message
            raise


_CONFIRMING: ContextVar[bool] = ContextVar("confirming", default=False)


class _ProducerOrAcquire:
    """Replaces the method `producer_or_acquire` of an app, which Celery calls to get a producer where the caller of a
    publish has passed none. Inside `confirming`, it returns one of `confirmed`.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lend = app.producer_or_acquire

    def __call__(self, producer: Producer | None = None) -> AbstractContextManager[Producer]:
        if producer is None and _CONFIRMING.get():
            return confirmed(self._app)
        return self._lend(producer)  # type: ignore[no-any-return]


@contextmanager
def confirming(app: Celery) -> Iterator[None]:
    """Inside this block, let RabbitMQ confirm also those publishes of this thread for which Celery's code accepts no
    producer, such as the publishes of errbacks.
    """
    if not isinstance(app.producer_or_acquire, _ProducerOrAcquire):
        app.producer_or_acquire = _ProducerOrAcquire(app)
    before = _CONFIRMING.set(True)
    try:
        yield
    finally:
        _CONFIRMING.reset(before)
