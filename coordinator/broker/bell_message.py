"""Prepares a node's doorbell so that a step can put it into the node's queue inside Redis.

This works where the broker is a database of the coordinator's own Redis. A node registers the name of its queue and the
message, with two placeholders for the parts that differ. To get the message in the form of the installed kombu, kombu
publishes one to a queue without a consumer, and this module reads it back.
"""

from __future__ import annotations

import json
import logging

from celery import Celery

from coordinator.broker.doorbells import publish_bell, queue_of
from coordinator.broker.transport import REDIS_SCHEMES, SENTINELS
from coordinator.fleet.nodes import About
from coordinator.store.client import Store
from coordinator.store.database import database_of

logger = logging.getLogger(__name__)

# Placeholders: functions/rules/doorbells.lua replaces them by the bell and a number.
_BELL, _TAG = "THE_BELL", "THE_TAG"


def about_bells(app: Celery, store: Store, node: str) -> About:
    """The fields for the node's record; empty where its bells are published like other messages."""
    url = str(app.conf.broker_url or "")
    is_one = url.startswith(SENTINELS) or (url.startswith(REDIS_SCHEMES) and ";" not in url)
    if not is_one or url != (app.conf.broker_write_url or url):
        return {}
    try:
        return _about(app, store, node)
    except Exception as error:  # any error of kombu, redis-py or the network
        logger.info("bells of %s are published one by one: %s", node, error)
        return {}


def _about(app: Celery, store: Store, node: str) -> About:
    queue, spare = queue_of(node).name, f"{queue_of(node).name}.pattern"
    prefix = (app.conf.broker_transport_options or {}).get("global_keyprefix", "")
    with app.connection_for_write(transport_options={"global_keyprefix": ""}) as connection:
        channel = connection.default_channel
        broker, home = database_of(channel.client), store.database
        if not broker.is_beside(home):
            return {}
        channel.queue_purge(prefix + spare)
        try:
            publish_bell(app, connection.Producer(), prefix + spare, _BELL, ())
            [message] = channel.client.lrange(prefix + spare, 0, -1)
        finally:
            channel.queue_purge(prefix + spare)  # all priorities: each has a list
    text = message.decode() if isinstance(message, bytes) else str(message)
    written = json.loads(text)
    tag = json.dumps(written["properties"]["delivery_tag"])
    if tag not in text or written["headers"].get("id") != _BELL:  # protocol 1 has the id inside the encoded body
        raise ValueError("kombu changed the message, or Celery uses protocol 1")
    text = text.replace(json.dumps(prefix + spare), json.dumps(queue)).replace(tag, json.dumps(store.prefix + _TAG))
    return {"bell_queue": f"{broker.database} {home.database} {prefix}{queue}", "bell_message": text}
