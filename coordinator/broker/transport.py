"""How the library talks to the app's broker: its transport options, and whether it is a Redis."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from coordinator.address import through_sentinels
from coordinator.settings import Settings

if TYPE_CHECKING:
    from celery import Celery
    from kombu.connection import Connection

REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+socket://")
SENTINELS = "sentinel://"
AMQP_SCHEMES = ("amqp://", "amqps://", "pyamqp://")

# A thread of ours gives up a connection that swallows everything after these; the app's own values serve its workers.
BOUNDED = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry_on_timeout": False,
    "max_connections": 2,
}

# On AMQP, a broker that takes nothing holds up whoever publishes, for as long as its socket's buffers are full.
BRIEF = {"max_retries": 0, "read_timeout": 1, "write_timeout": 1}

# A publish over such a connection ends once the broker has the message, on its disk where the queue is durable.
CONFIRMED = {"max_retries": 0, "confirm_publish": True, "read_timeout": 5, "write_timeout": 5}

# With these a process notices a half-open connection; an app's own settings win.
_TRANSPORT = {"socket_timeout": 5, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 5}

# A sentinel that is away costs a second, not redis-py's ten tries of it.
_SENTINEL = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": None}


def is_redis(broker: str | Connection | None) -> bool:
    """Whether the broker at this URL, or behind this connection, is a Redis."""
    if broker is None or isinstance(broker, str):
        return str(broker or "").startswith((*REDIS_SCHEMES, SENTINELS))
    return bool(broker.transport.driver_type == "redis")


def is_amqp(broker: str | Sequence[str] | None) -> bool:
    """Whether the broker at this URL, or at the first of these, is RabbitMQ or another one that speaks AMQP 0.9.1."""
    first = broker if isinstance(broker, str) else next(iter(broker or ()), "")
    return (first or "amqp://").startswith(AMQP_SCHEMES)


def settings_of(app: Celery | None, given: Mapping[str, object]) -> Settings:
    """Read the settings of an app's coordinator. Where they name no Redis, a Redis broker serves."""
    conf = app.conf if app else {}
    named = {name: conf[name] for name in conf if name.startswith("coordinator_")}
    settings = Settings.load(given, named, os.environ)
    broker = str(app.conf.broker_url or "") if app else ""
    if app and not settings.url and (url := _served_by(app, broker)):
        settings = Settings.load({**given, "url": url}, named, os.environ)
        settings._sources["url"] = "broker"
    return settings


def _served_by(app: Celery, broker: str) -> str:
    """The address of a Redis broker as the coordinator's own is written; empty: it is none, or that says not enough."""
    if broker.startswith(SENTINELS):  # with certificates of its own, somebody names them in the coordinator's URL
        return "" if app.conf.broker_use_ssl else through_sentinels(broker, app.conf.broker_transport_options or {})
    return broker.replace("redis+socket://", "unix://") if broker.startswith(REDIS_SCHEMES) else ""


def merge_transport(sender: Celery, **_: object) -> None:
    """Add our options, once the app knows its broker and its backend."""
    conf = sender.conf
    if is_redis(conf.broker_url):
        # Ordinary tasks go to free slots only; a broker that is full ends no worker.
        conf.add_defaults({"worker_disable_prefetch": True, "broker_channel_error_retry": True})
    for url, name in (
        (conf.broker_url, "broker_transport_options"),
        (conf.result_backend, "result_backend_transport_options"),
    ):
        if is_redis(url):
            conf[name] = {**_TRANSPORT, **(conf[name] or {})}
        if str(url or "").startswith(SENTINELS):
            conf[name] = {**conf[name], "sentinel_kwargs": {**_SENTINEL, **(conf[name].get("sentinel_kwargs") or {})}}
