"""Shares the last free slot of a worker between its wake-ups and the messages of a Redis broker.

With `worker_disable_prefetch`, Celery asks for a message while a slot is free, and kombu's BRPOP stays in flight until
one comes. A wake-up may take that slot meanwhile. Then the message would wait here behind a job that may take an hour,
while other nodes are idle; kombu from 5.7 on would not even read it. So it is read, and goes back to the head of its
queue. The next slot is the broker's, if it has something at once, and the one after that a wake-up's.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress

from celery.concurrency.base import BasePool
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.message import Message

_AT_ONCE = 0.02  # seconds: Celery's loop asks the broker as soon as a slot is free
_BLOCKED = 2.5  # seconds: a loop that blocks, as gevent's, looks for free slots each two


class LastSlot:
    """The free slots of a worker whose broker is asked for messages only while one is free."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._channel = consumer.task_consumer.channel
        qos = self._channel.qos
        usual = type(qos).can_consume  # Celery 5.6 takes each pool of greenlets for full
        qos.can_consume = lambda: bool(self._channel._in_poll) or (self._free() > 0 and usual(qos))
        self._turn = _AT_ONCE if consumer.hub else _BLOCKED
        self._next = ""  # "broker" or "wake-up": whose turn it is; "": whoever comes first
        self._since = math.inf

    def wait(self) -> float:
        """Seconds for which a wake-up is to wait for a slot, at most; inf: until one is free."""
        free, now = self._free(), time.monotonic()
        if free == 1 and self._next == "broker":
            self._since = min(self._since, now)
            if (left := self._since + self._turn - now) > 0:
                return left
            self._next = ""
        self._since = math.inf
        return 0.0 if free > 0 else math.inf

    def took(self) -> None:
        """A wake-up has taken a slot. A loop that blocks has not asked for what waits at the broker."""
        if not self._consumer.hub and self._free() < 1:
            with suppress(*self._consumer.connection_errors):
                if any(self._channel._size(queue) for queue in self._channel.active_queues):
                    self._next = "broker"

    @property
    def is_for_wake_up(self) -> bool:
        """True if the broker had the last turn, and one slot is free."""
        return self._next == "wake-up" and self._free() == 1

    def admit(self, message: Message) -> bool:
        """False: no slot is left for this message of the broker, which goes back to the head of its queue; kombu's own
        `requeue` would put it behind all others.
        """
        is_free = self._free() > 0
        self._next = "wake-up" if is_free else "broker"
        if not is_free:
            self._channel.qos.restore_by_tag(message.delivery_tag)
            self._channel.qos._quick_ack(message.delivery_tag)
        return is_free

    def _free(self) -> int:
        limit = getattr(self._consumer.controller, "max_concurrency", None) or slots_of(self._consumer.pool)
        return int(limit) - len(state.reserved_requests)


def slots_of(pool: BasePool) -> int:
    """How many tasks a pool runs at once. Of greenlets, Celery 5.6 counts those at work instead."""
    return int((pool.limit if pool.is_green else getattr(pool, "num_processes", None)) or 0)


def last_slot(consumer: Consumer) -> LastSlot | None:
    """None: this worker fetches messages ahead, and wake-ups stand in line with those in its pool."""
    qos = getattr(consumer.task_consumer.channel, "qos", None)
    return LastSlot(consumer) if "can_consume" in getattr(qos, "__dict__", {}) else None
