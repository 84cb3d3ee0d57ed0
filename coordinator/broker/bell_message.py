"""How a step of Redis itself rings a node: where the broker is a database of the coordinator's own Redis.

The node tells at its registration into which queue a bell goes, and the message, with two marks for what differs.
kombu has written that message, to a queue of no consumer. So its form is that of the kombu that will read it.
"""

from __future__ import annotations

import json
import logging

from celery import Celery

from coordinator.broker.doorbells import publish_bell, queue_of
from coordinator.broker.transport import REDIS_SCHEMES, SENTINELS
from coordinator.fleet.nodes import About
from coordinator.store.client import Store
from coordinator.store.place import place_of

logger = logging.getLogger(__name__)

# functions/rules/beside.lua puts the bell and a number there.
_BELL, _TAG = "THE_BELL", "THE_TAG"


def about_bells(app: Celery, store: Store, node: str) -> About:
    """Fields of the node's record; none where its bells are published as other messages are."""
    url = str(app.conf.broker_url or "")
    is_one = url.startswith(SENTINELS) or (url.startswith(REDIS_SCHEMES) and ";" not in url)
    if not is_one or url != (app.conf.broker_write_url or url):
        return {}
    try:
        return _about(app, store, node)
    except Exception as error:  # all that kombu, redis and the network raise
        logger.info("bells of %s are published one by one: %s", node, error)
        return {}


def _about(app: Celery, store: Store, node: str) -> About:
    queue, spare = queue_of(node).name, f"{queue_of(node).name}.pattern"
    prefix = (app.conf.broker_transport_options or {}).get("global_keyprefix", "")
    with app.connection_for_write(transport_options={"global_keyprefix": ""}) as connection:
        channel = connection.default_channel
        there, home = place_of(channel.client), place_of(store.client)
        if not there.is_beside(home):
            return {}
        channel.queue_purge(prefix + spare)
        try:
            publish_bell(app, connection.Producer(), prefix + spare, _BELL, ())
            [message] = channel.client.lrange(prefix + spare, 0, -1)
        finally:
            channel.queue_purge(prefix + spare)  # the lists of all its priorities
    text = message.decode() if isinstance(message, bytes) else str(message)
    written = json.loads(text)
    tag = json.dumps(written["properties"]["delivery_tag"])
    if tag not in text or written["headers"].get("id") != _BELL:  # protocol 1 has it in the encoded body, out of reach
        raise ValueError("kombu has written another message than it was given, or Celery one of protocol 1")
    text = text.replace(json.dumps(prefix + spare), json.dumps(queue)).replace(tag, json.dumps(store.prefix + _TAG))
    return {"bell_queue": f"{there.database} {home.database} {prefix}{queue}", "bell_message": text}
