"""Ordinary tasks in the own queue of a node that is gone go to the app's default queue. For RabbitMQ; on Redis,
unacked.py does it.

RabbitMQ removes the own queue of a node that is gone for an hour, with all that lies in it. Each node says in the
coordinator's Redis that it has such a queue. The errands of any node look at those of nodes that are not alive, and
that nobody consumes. They publish each message anew before they acknowledge it: a task may come twice, and none is
lost. Doorbells among them are void and are dropped.
"""

from __future__ import annotations

import logging
from typing import Protocol

from celery import Celery
from kombu.connection import Connection

from coordinator.broker import doorbells
from coordinator.broker.doorbells import TASK, queue_of
from coordinator.broker.transport import CONFIRMED, is_amqp
from coordinator.fleet.nodes import Nodes
from coordinator.inbox.amqp_queue import AmqpProperties
from coordinator.store.client import Store
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

_LOOK = 5.0  # seconds
_CONNECT = 2.0  # seconds


class Found(Protocol):
    """A message of py-amqp that was asked for."""

    delivery_tag: int
    properties: AmqpProperties


class Forsaken(StoppableThread):
    """A warden plugin, on RabbitMQ."""

    def __init__(self, app: Celery, node: str) -> None:
        super().__init__("forsaken", 2.0)
        self._app = app
        self._node = node
        self._failing = False

    def run(self) -> None:
        while not self.stopping.is_set():
            self.step()
            self.stopping.wait(_LOOK)

    def step(self) -> None:
        """Never raises."""
        try:
            self._look(self._app.coordinator.store)
        except Exception as error:  # all that redis, amqp and the network raise
            if not self._failing:
                logger.warning("cannot look for tasks in the queues of nodes that are gone: %s", error)
            self._failing = True
        else:
            self._failing = False

    def _look(self, store: Store) -> None:
        key = store.key("homes", self._app.main)
        store.read("SADD", key, self._node)
        store.read("EXPIRE", key, int(doorbells.GONE) + 600)
        alive = Nodes(store)
        gone = [name for one in store.read("SMEMBERS", key) if not alive.is_alive(name := one.decode())]
        if not gone:
            return
        with self._app.connection_for_write(connect_timeout=_CONNECT, transport_options=CONFIRMED) as connection:
            for name in gone:
                if not self._is_emptied(connection, name):
                    store.read("SREM", key, name)

    def _is_emptied(self, connection: Connection, node: str) -> bool:
        """False where the queue is not there any more."""
        queue = queue_of(node).name
        try:
            with connection.channel() as asking:
                found = asking.queue_declare(queue, passive=True)
        except connection.channel_errors:
            return False
        if found.message_count and not found.consumer_count:
            number = self._move(connection, queue)
            logger.warning("%s is gone: %d tasks in its own queue go to the default queue", node, number)
        return True

    def _move(self, connection: Connection, queue: str) -> int:
        number, home = 0, self._app.conf.task_default_queue
        with connection.channel() as channel:
            self._app.amqp.queues[home](channel).declare()
            message: Found | None
            while (message := channel.basic_get(queue)) is not None and not self.stopping.is_set():
                if (message.properties.get("application_headers") or {}).get("task") != TASK:
                    channel.basic_publish_confirm(message, exchange="", routing_key=home)
                    number += 1
                channel.basic_ack(message.delivery_tag)
        return number


def open_forsaken(app: Celery, node: str) -> list[Forsaken]:
    """Empty where the broker is not RabbitMQ."""
    return [Forsaken(app, node)] if is_amqp(app.conf.broker_read_url) else []
