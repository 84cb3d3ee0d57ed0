"""Shares the last free slot of a worker between its wake-ups and the messages of a Redis broker.

With `worker_disable_prefetch`, Celery asks for a message while a slot is free, and kombu's BRPOP stays in flight until
one comes. A wake-up may take that slot meanwhile. Then the message would wait here behind a job that may take an hour,
while other nodes are idle; kombu from 5.7 on would not even read it. So it is read and goes back to its queue, and the
broker gets the next slot: it is asked first, and has 20 ms to answer.
"""

from __future__ import annotations

import math
import time

from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.message import Message

_TURN = 0.02  # seconds


class LastSlot:
    """The free slots of a worker whose broker is asked for messages only while one is free."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._channel = consumer.task_consumer.channel
        self._usual = self._channel.qos.can_consume
        self._channel.qos.can_consume = lambda: self._is_asked() or self._usual()
        self._owes = False  # the broker has the next turn
        self._since = math.inf

    def wait(self) -> float:
        """Seconds after which a wake-up may take a slot, or a later call allows it; inf: not until one is free."""
        free = self._free()
        if free == 1 and (self._owes or self._asks_next()):
            now = time.monotonic()
            self._since = min(self._since, now)
            if (left := self._since + _TURN - now) > 0:
                return left
        self._since = math.inf
        self._owes = self._owes and free != 1
        return 0.0 if free > 0 else math.inf

    def admit(self, message: Message) -> bool:
        """False: no slot is left for this message of the broker, which goes back to its queue."""
        self._owes = self._free() < 1
        if self._owes:
            message.requeue()
        return not self._owes

    def is_unasked(self) -> bool:
        """True if the loop is about to ask the broker: a wake-up can wait for that."""
        return not self._owes and self._asks_next()

    def _free(self) -> int:
        limit = getattr(self._consumer.controller, "max_concurrency", None) or self._consumer.pool.num_processes
        return int(limit) - len(state.reserved_requests)

    def _is_asked(self) -> bool:
        return bool(self._channel._in_poll)

    def _asks_next(self) -> bool:
        return not self._is_asked() and bool(self._channel.active_queues) and bool(self._usual())


def last_slot(consumer: Consumer) -> LastSlot | None:
    """None: this worker fetches messages ahead, and wake-ups stand in line with those in its pool."""
    qos = getattr(consumer.task_consumer.channel, "qos", None)
    return LastSlot(consumer) if "can_consume" in getattr(qos, "__dict__", {}) else None
