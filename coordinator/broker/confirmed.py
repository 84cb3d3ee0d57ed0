"""Publishes that RabbitMQ confirms: for messages whose loss nobody would make good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from celery import Celery
from kombu.messaging import Producer
from kombu.pools import producers

from coordinator.broker.transport import CONFIRMED, is_amqp

_WAIT = 5  # seconds for a producer that is free, and for a connection

# Beside a producer of these: a connection that was lost meanwhile costs one more try.
TWICE = {"max_retries": 1, "interval_start": 0}


@contextmanager
def confirmed(app: Celery) -> Iterator[Producer]:
    """Lend a producer. Its publish ends once the broker has the message, on its disk where the queue is durable; it
    raises where that is not so within some seconds, though the message may come all the same. On any broker but
    RabbitMQ it is one of the app's own: a publish on Redis ends with its answer.
    """
    if not is_amqp(app.conf.broker_write_url):
        with app.producer_pool.acquire(block=True, timeout=_WAIT) as producer:
            yield producer
        return
    connection = app.connection_for_write(connect_timeout=_WAIT, transport_options=CONFIRMED)
    with producers[connection].acquire(block=True, timeout=_WAIT) as producer:
        try:
            yield producer
        except Exception:
            producer.connection.collect()  # a late answer would confirm the next message
            raise


_CONFIRMING: ContextVar[bool] = ContextVar("confirming", default=False)


class _Lender:
    """An app's `producer_or_acquire`, which Celery's own code calls where nobody gives it a producer."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lend = app.producer_or_acquire

    def __call__(self, producer: Producer | None = None) -> AbstractContextManager[Producer]:
        if producer is None and _CONFIRMING.get():
            return confirmed(self._app)
        return self._lend(producer)  # type: ignore[no-any-return]


@contextmanager
def confirming(app: Celery) -> Iterator[None]:
    """Have this thread's publishes confirmed that take no producer, such as those of errbacks."""
    if not isinstance(app.producer_or_acquire, _Lender):
        app.producer_or_acquire = _Lender(app)
    before = _CONFIRMING.set(True)
    try:
        yield
    finally:
        _CONFIRMING.reset(before)
