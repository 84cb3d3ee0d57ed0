"""Publishes with RabbitMQ's confirms, for messages that nobody would send again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from celery import Celery
from kombu.messaging import Producer
from kombu.pools import producers

from coordinator.broker import is_amqp, one_try

_WAIT = 5  # seconds to wait for a free producer, and for a connection

# The retry policy to use with these producers: a connection that was lost in the pool costs one more try.
TWICE = {"max_retries": 1, "interval_start": 0}


@contextmanager
def confirmed(app: Celery) -> Iterator[Producer]:
    """Lend a producer whose publish returns once the broker has the message, on disk if the queue is durable. The
    publish raises if the broker does not confirm within some seconds; the message may still arrive. On brokers other
    than RabbitMQ this is one of the app's own producers: a publish on Redis waits for the reply anyway.
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
            producer.connection.collect()  # a late answer would confirm the next message
            raise


_CONFIRMING: ContextVar[bool] = ContextVar("confirming", default=False)


class _ProducerOrAcquire:
    """Replaces an app's `producer_or_acquire`, which Celery calls for a publish without a producer."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lend = app.producer_or_acquire

    def __call__(self, producer: Producer | None = None) -> AbstractContextManager[Producer]:
        if producer is None and _CONFIRMING.get():
            return confirmed(self._app)
        return self._lend(producer)  # type: ignore[no-any-return]


@contextmanager
def confirming(app: Celery) -> Iterator[None]:
    """Confirm also this thread's publishes that take no producer, such as those of errbacks."""
    if not isinstance(app.producer_or_acquire, _ProducerOrAcquire):
        app.producer_or_acquire = _ProducerOrAcquire(app)
    before = _CONFIRMING.set(True)
    try:
        yield
    finally:
        _CONFIRMING.reset(before)
