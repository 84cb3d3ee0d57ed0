"""Removes the queues of nodes that are gone from a Redis broker. RabbitMQ removes such a queue by itself, after an hour
without a consumer (`broker.doorbells`).

The errands of each node note in the coordinator's Redis that the node lives. Errands of any node remove the queue of a
node without a note for an hour plus the visibility timeout: until then kombu may put messages back into that queue.
"""

from __future__ import annotations

import logging

from celery import Celery

from coordinator.broker.doorbells import GONE, queue_of
from coordinator.broker.transport import brief_connection, is_redis
from coordinator.fleet.nodes import Nodes

logger = logging.getLogger(__name__)

_VISIBLE = 3600  # seconds: kombu's default visibility timeout


def remove_queues_of_gone_nodes(app: Celery, node: str) -> None:
    """Note that this node lives, and remove the queues of nodes that do not."""
    if not is_redis(app.conf.broker_write_url):
        return
    store, nodes = app.coordinator.store, Nodes(app.coordinator.store)
    key, now = store.key("homes", app.main), store.clock().now
    store.read("ZADD", key, now, node)
    options = app.conf.broker_transport_options or {}
    patience = GONE + float(options.get("visibility_timeout", _VISIBLE))
    for name in [raw.decode() for raw in store.read("ZRANGEBYSCORE", key, "-inf", now - patience * 1000)]:
        if not nodes.is_alive(name):
            with brief_connection(app) as connection:
                removed = queue_of(name).bind(connection.default_channel).purge()
            logger.info("%s is gone: removed its queue, and %d messages in it", name, removed)
        store.read("ZREM", key, name)
