"""Shares the last free slot of a worker between wake-ups, which start jobs, and the task messages of a Redis broker.

With `worker_disable_prefetch`, Celery asks for a message only while a slot is free, and kombu's BRPOP stays pending
until a message comes. A wake-up may take that slot in the meantime. The message would then wait in this worker behind a
job that may take an hour, while other nodes are idle; kombu from 5.7 on would not even read the message. So the message
is read, and put back at the head of its queue. To be fair, the next free slot goes to a message if the broker has one
at once, and the slot after that to a wake-up.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress

from celery.concurrency.base import BasePool
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.message import Message

_AT_ONCE = 0.02  # seconds in which a message takes a free slot, where Celery's event loop polls the broker at once
_BLOCKED = 2.5  # the same where the loop blocks, as under gevent: it looks for free slots every two seconds


class LastSlot:
    """Decides whether a wake-up or a message of the broker gets the last free slot of a worker that fetches messages
    only while a slot is free.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._channel = consumer.task_consumer.channel
        qos = self._channel.qos
        usual = type(qos).can_consume  # False for each pool of greenlets, which Celery 5.6 takes for full
        qos.can_consume = lambda: bool(self._channel._in_poll) or (self._free() > 0 and usual(qos))
        self._turn = _AT_ONCE if consumer.hub else _BLOCKED
        self._next = ""  # who gets the last slot: "broker" or "wake-up"; "": whichever comes first
        self._since = math.inf

    def wait(self) -> float:
        """Seconds that a wake-up must wait before it may take a slot: 0 = now, inf = until a slot is free, else the
        time for which the last slot is still kept for a message.
        """
        free, now = self._free(), time.monotonic()
        if free == 1 and self._next == "broker":
            self._since = min(self._since, now)
            if (left := self._since + self._turn - now) > 0:
                return left
            self._next = ""
        self._since = math.inf
        return 0.0 if free > 0 else math.inf

    def took(self) -> None:
        """Note that a wake-up has taken a slot. Where the loop blocks and this was the last slot, the next one goes to
        the broker if messages wait there, since the loop has not polled for them.
        """
        if not self._consumer.hub and self._free() < 1:
            with suppress(*self._consumer.connection_errors):
                if any(self._channel._size(queue) for queue in self._channel.active_queues):
                    self._next = "broker"

    @property
    def is_for_wake_up(self) -> bool:
        """True if just one slot is free, and it is a wake-up's, since a message took the one before."""
        return self._next == "wake-up" and self._free() == 1

    def admit(self, message: Message) -> bool:
        """Return True if a slot is free for this message of the broker. Otherwise put the message back at the head of
        its queue, and return False; kombu's own `requeue` would put it behind all other messages.
        """
        is_free = self._free() > 0
        self._next = "wake-up" if is_free else "broker"
        if not is_free:
            # Restore the message in Redis, and remove it from kombu's list of unacknowledged messages: at the close of
            # the channel, kombu would restore it once more.
            self._channel.qos.restore_by_tag(message.delivery_tag)
            self._channel.qos._quick_ack(message.delivery_tag)
        return is_free

    def _free(self) -> int:
        limit = getattr(self._consumer.controller, "max_concurrency", None) or slots_of(self._consumer.pool)
        return int(limit) - len(state.reserved_requests)


def slots_of(pool: BasePool) -> int:
    """How many tasks a pool can run at once. For pools of greenlets, `num_processes` will not do: in Celery 5.6 it is
    the number of greenlets that run.
    """
    return int((pool.limit if pool.is_green else getattr(pool, "num_processes", None)) or 0)


def last_slot(consumer: Consumer) -> LastSlot | None:
    """Make the LastSlot of a worker; None for a worker that prefetches messages, where wake-ups and messages wait in
    the order in which they came.
    """
    qos = getattr(consumer.task_consumer.channel, "qos", None)
    return LastSlot(consumer) if "can_consume" in getattr(qos, "__dict__", {}) else None
