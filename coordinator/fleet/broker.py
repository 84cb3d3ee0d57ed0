"""How the library talks to the app's broker: its transport options, and whether it is a Redis."""

from __future__ import annotations

from celery import Celery
from kombu.connection import Connection

REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+socket://")

# A thread of ours gives up a connection that swallows everything after these; the app's own values serve its workers.
BOUNDED = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry_on_timeout": False,
    "max_connections": 2,
}

# With these a process notices a half-open connection; an app's own settings win.
_TRANSPORT = {"socket_timeout": 5, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 5}


def is_redis(broker: str | Connection | None) -> bool:
    """Whether the broker at this URL, or behind this connection, is a Redis."""
    if isinstance(broker, Connection):
        return bool(broker.transport.driver_type == "redis")
    return str(broker or "").startswith(REDIS_SCHEMES)


def merge_transport(sender: Celery, **_: object) -> None:
    """Add our options, once the app knows its broker and its backend."""
    conf = sender.conf
    if is_redis(conf.broker_url):
        conf.add_defaults({"worker_disable_prefetch": True})  # ordinary tasks go to free slots only
    for url, name in (
        (conf.broker_url, "broker_transport_options"),
        (conf.result_backend, "result_backend_transport_options"),
    ):
        if is_redis(url):
            conf[name] = {**_TRANSPORT, **(conf[name] or {})}
