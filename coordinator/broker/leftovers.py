"""A worker that starts removes what older versions left on the broker.

Their nodes' queues had no end on RabbitMQ, and on Redis a binding that stayed. Nobody uses such a binding: a doorbell
is published to the queue itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from celery import Celery
from kombu.connection import Connection

from coordinator.broker import doorbells
from coordinator.broker.doorbells import OF_NODES, ONE_TRY, queue_of
from coordinator.broker.transport import is_redis

if TYPE_CHECKING:
    from kombu.transport.redis import Channel

logger = logging.getLogger(__name__)

_CONNECT = 2.0  # seconds for which a broker that is away holds up the worker's start


def clear(app: Celery, node: str) -> None:
    """Before the node's own queue is declared. Never raises: the worker itself tells a broker that is away."""
    options = ONE_TRY if is_redis(app.conf.broker_write_url) else {}
    try:
        with app.connection_for_write(connect_timeout=_CONNECT, transport_options=options) as connection:
            if connection.transport.driver_type == "redis":
                _unbind(app, connection.default_channel)
            elif connection.transport.driver_type == "amqp":
                _drop(connection, node)
    except Exception as error:
        logger.info("cannot look for what older versions left on the broker: %s", error)


def _unbind(app: Celery, channel: Channel) -> None:
    """Forget the bindings of all nodes' queues."""
    for exchange in {queue.exchange.name for queue in app.amqp.queues.values()} - {""}:
        bound = channel.keyprefix_queue % (exchange,)
        void = [one for one in channel.client.smembers(bound) if _queue(one, channel.sep).startswith(OF_NODES)]
        if void:
            channel.client.srem(bound, *void)
            logger.info("removed %d bindings of nodes' queues that older versions left on the broker", len(void))


def _queue(member: bytes | str, parting: str) -> str:
    text = member.decode(errors="replace") if isinstance(member, bytes) else member
    return text.rpartition(parting)[2]


def _drop(connection: Connection, node: str) -> None:
    """As long as a queue of this name without an end is there, no worker can declare its own. Doorbells in it are void.
    One that somebody consumes stays.
    """
    try:
        queue_of(node, doorbells.GONE).bind(connection.default_channel).declare()
    except connection.channel_errors:
        with suppress(*connection.channel_errors), connection.channel() as channel:
            channel.queue_delete(queue_of(node).name, if_unused=True)
            logger.warning("removed the queue of %s that an older version had left on the broker", node)
