"""Doorbells: the Celery messages that say "there is work" to one node. A lost, late or doubled one costs latency only.

Published to the node's own queue with one bounded try. Time limits above any setting keep an app's global limits away
from runners; the limits of jobs are applied per job.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.pools import producers

logger = logging.getLogger(__name__)

TASK = "coordinator.run"
REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+socket://")

# What a half-open connection needs to be noticed; an app's own settings win.
_TRANSPORT = {"socket_timeout": 5, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 5}

_NO_LIMIT = 366 * 86400
_ONE_TRY = {"max_retries": 0, "socket_timeout": 1, "socket_connect_timeout": 1}


def queue_of(node: str) -> Queue:
    """The queue that only this node's worker consumes."""
    return Queue(f"coordinator.node.{node}", exchange="", routing_key=f"coordinator.node.{node}")


class Doorbells:
    def __init__(self, app: Celery) -> None:
        self._app = app

    @cached_property
    def _connection(self) -> Connection:
        """What it takes to give up within a second: kombu would go on trying to connect for six."""
        options = _ONE_TRY if self._on_redis else {"max_retries": 0}
        connection: Connection = self._app.connection_for_write(transport_options=options)
        return connection

    @property
    def _on_redis(self) -> bool:
        return str(self._app.conf.broker_write_url or "").startswith(REDIS_SCHEMES)

    def ring(self, node: str, bell: str) -> None:
        """Never raises: the node's warden rings again what did not arrive."""
        amqp = self._app.amqp
        try:
            message = amqp.create_task_message(
                bell, TASK, (bell,), {}, ignore_result=True, time_limit=_NO_LIMIT, soft_time_limit=_NO_LIMIT
            )
            with producers[self._connection].acquire(block=True, timeout=1.0) as producer:
                amqp.send_task_message(
                    producer, TASK, message, queue=queue_of(node), declare=[], retry=False, serializer="json"
                )
        except Exception as error:
            logger.warning("could not ring %s: %s; its warden will", node, error)


def merge_transport(sender: Celery, **_: Any) -> None:
    """Once the app knows its broker and its backend."""
    conf = sender.conf
    if str(conf.broker_url or "").startswith(REDIS_SCHEMES):
        conf.add_defaults({"worker_disable_prefetch": True})  # ordinary tasks go to free slots only
    for url, name in (
        (conf.broker_url, "broker_transport_options"),
        (conf.result_backend, "result_backend_transport_options"),
    ):
        if str(url or "").startswith(REDIS_SCHEMES):
            conf[name] = {**_TRANSPORT, **(conf[name] or {})}
