"""Doorbells: Celery messages that tell one node "there is work". A lost, late or doubled one only costs latency.

`Doorbells` publishes each to the node's own queue, in one bounded try. A doorbell carries very long time limits, so
that an app's global limits do not end a runner. The runner applies each job's own limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from contextvars import Context
from functools import cached_property

from celery import Celery
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.messaging import Producer
from kombu.pools import producers

from coordinator.broker.transport import brief_connection, is_redis
from coordinator.threads import SendingThread

logger = logging.getLogger(__name__)

TASK = "coordinator.run"
OF_NODES = "coordinator.node."

JSON = {"application/json"}
GONE = 3600.0  # seconds without a consumer after which a broker removes a node's queue
_NO_LIMIT = 366 * 86400
_WAITING = 1000  # bells in the queue; older ones are dropped, and the nodes' wardens ring those again


def queue_of(node: str, expires: float | None = None) -> Queue:
    """The queue that only this node's worker consumes."""
    return Queue(f"{OF_NODES}{node}", exchange="", routing_key=f"{OF_NODES}{node}", expires=expires)


def add_queue(app: Celery, node: str, consumed: bool) -> None:
    """Declare a node's queue in its worker. An hour after the node is gone, nothing of it is left on the broker.

    The queue has no binding, because kombu keeps bindings on Redis for ever, one for each name that a node ever had. On
    other brokers the queue expires. On Redis an empty queue does not exist, and an expiry would drop waiting messages.
    """
    queue = queue_of(node, None if is_redis(app.conf.broker_url) else GONE)
    queues = app.amqp.queues
    (queues.select_add if consumed else queues.add)(queue)
    queue.exchange = Exchange("")  # replaces the exchange that Celery sets
    queue.queue_arguments = None  # type: ignore[attr-defined]  # removes the priorities that Celery sets


class Doorbells:
    """Publishes doorbells over a connection to the app's broker."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    @cached_property
    def _connection(self) -> Connection:
        return brief_connection(self._app)

    def ring(self, node: str, bell: str) -> None:
        """Ring a node. Never raises; the node's warden rings again if the doorbell does not arrive."""
        try:
            Context().run(self._publish, node, bell)
        except Exception as error:
            logger.warning("could not ring %s, its warden will: %s", node, error)

    def _publish(self, node: str, bell: str) -> None:
        """Publish over kombu, without Celery's signals and `task-sent` events, since a doorbell is no task of the user.

        The empty context keeps doorbells out of the traces of monitoring SDKs.
        """
        with producers[self._connection].acquire(block=True, timeout=1.0) as producer:
            try:
                publish_bell(self._app, producer, queue_of(node).name, bell, (bell,))
            except Exception:
                if not is_redis(self._app.conf.broker_write_url):  # it may have sent half a message
                    producer.connection.collect()
                raise


def admit_bells(strategies: MutableMapping[str, Callable[..., None]]) -> None:
    """Make a worker take doorbells, which are JSON, also where its app accepts none. They carry no more than an id."""
    if usual := strategies.get(TASK):  # a worker that can run no jobs has none

        def take(message: Message, *more: object) -> None:
            message.accept = JSON
            usual(message, *more)

        strategies[TASK] = take


def publish_bell(app: Celery, producer: Producer, queue: str, bell: str, args: tuple[str, ...]) -> None:
    headers, properties, body, _ = app.amqp.create_task_message(
        bell, TASK, args, {}, ignore_result=True, time_limit=_NO_LIMIT, soft_time_limit=_NO_LIMIT
    )
    producer.publish(
        body, exchange="", routing_key=queue, headers=headers, serializer="json", retry=False, **properties
    )


class BellQueue(SendingThread[tuple[str, str]]):
    """Rings from a thread, one bell after another, so that a slow broker does not delay callers."""

    def __init__(self, doorbells: Doorbells) -> None:
        super().__init__("coordinator-bells", 0.0, _WAITING)
        self._doorbells = doorbells

    def ring(self, node: str, bell: str) -> None:
        """Queue a bell. Returns at once, and never raises."""
        self.put((node, bell))

    def send(self, items: list[tuple[str, str]]) -> None:
        for node, bell in items:
            self._doorbells.ring(node, bell)
