"""The app's broker: its type, and the options of its connections."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from coordinator.address import from_broker, through_sentinels
from coordinator.errors import SettingsError
from coordinator.settings import Settings

if TYPE_CHECKING:
    from celery import Celery
    from kombu.connection import Connection

REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+socket://")
SENTINELS = "sentinel://"
AMQP_SCHEMES = ("amqp://", "amqps://", "pyamqp://")

# Bounds for connections of our threads to a broker that swallows everything. Workers use the app's own values.
BOUNDED = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry_on_timeout": False,
    "max_connections": 2,
}

# On AMQP, a broker that accepts nothing blocks the publisher while the socket's buffers are full.
_BRIEF = {"read_timeout": 1, "write_timeout": 1}

_ONE_TRY = {"socket_timeout": 1, "socket_connect_timeout": 1}

# With these, a publish returns once the broker has the message, on its disk where the queue is durable.
CONFIRMED = {"confirm_publish": True, "read_timeout": 5, "write_timeout": 5}

# With these a process notices a half-open connection; an app's own settings win.
_TRANSPORT = {"socket_timeout": 5, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 5}

_DEFAULTS = {
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # a worker waits for its broker however long that is away
    "worker_consumer": "coordinator.worker.bootstep:Consumer",
}

# Ordinary tasks go to free slots only, and a full broker ends no worker.
_ON_REDIS = {"worker_disable_prefetch": True, "broker_channel_error_retry": True}

# A sentinel that is away costs a second, not redis-py's ten tries of it.
_SENTINEL = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": None}


def brokers(url: object) -> list[str]:
    """The addresses in Celery's setting of a broker: one, or those among which kombu fails over. Sentinels are one."""
    if isinstance(url, str):
        return [url] if url.startswith(SENTINELS) else url.split(";")
    return [str(one) for one in url] if isinstance(url, Sequence) else []


def is_redis(broker: str | Sequence[str] | Connection | None) -> bool:
    """True if the broker at this URL (of several, the first), or behind this connection, is a Redis."""
    transport = getattr(broker, "transport", None)
    if transport is not None:
        return bool(transport.driver_type == "redis")
    return "".join(brokers(broker)[:1]).startswith((*REDIS_SCHEMES, SENTINELS))


def is_amqp(broker: str | Sequence[str] | None) -> bool:
    """True if the broker at this URL (of several, the first) is RabbitMQ, or another one that speaks AMQP 0.9.1."""
    return ("".join(brokers(broker)[:1]) or "amqp://").startswith(AMQP_SCHEMES)


def one_try(broker: str | Sequence[str] | None) -> dict[str, object]:
    """Transport options with which kombu tries each address of a broker once, and RabbitMQ confirms each publish."""
    return _each_once(broker) | (CONFIRMED if is_amqp(broker) else {})


def _each_once(broker: str | Sequence[str] | None) -> dict[str, object]:
    return {"max_retries": max(len(brokers(broker)) - 1, 0)}


def brief_connection(app: Celery) -> Connection:
    """A connection that gives up within a second; by default kombu tries to connect for six."""
    broker = app.conf.broker_write_url
    tries = _each_once(broker)
    if is_amqp(broker):
        return cast("Connection", app.connection_for_write(connect_timeout=1, transport_options=_BRIEF | tries))
    options = _ONE_TRY | tries if is_redis(broker) else tries
    return cast("Connection", app.connection_for_write(transport_options=options))


def settings_of(app: Celery | None, arguments: Mapping[str, object]) -> Settings:
    """Read the settings of an app's coordinator. If they name no Redis, it uses a Redis broker."""
    conf, namespace = (app.conf, app.namespace or "celery") if app else ({}, "")
    settings = Settings.load(arguments, conf, os.environ, namespace)
    urls = brokers(app.conf.broker_url) if app else []
    if any("cluster" in url.partition("://")[0] for url in urls):  # kombu takes it for a Redis on this machine
        raise SettingsError(
            "the broker's URL names a Redis Cluster, which Celery cannot use as a broker: name a single Redis or "
            "Valkey, one behind Sentinel, or RabbitMQ"
        )
    if app and not settings.url and is_redis(urls):
        name = "CELERY_BROKER_URL" if os.environ.get("CELERY_BROKER_URL") else "broker_url"
        url = _url_from_broker(app, name, urls)
        settings = Settings.load(arguments, conf, os.environ, namespace, (name, url))
    return settings


def _url_from_broker(app: Celery, name: str, urls: Sequence[str]) -> str:
    """A Redis broker's address in the coordinator's form; empty for Sentinel without a master. Raises SettingsError for
    several, and for one that cannot be read.
    """
    if len(urls) > 1:
        raise SettingsError(
            f"{name} names {len(urls)} brokers, and the coordinator keeps its jobs in one Redis: name that one in "
            "coordinator_url (COORDINATOR_URL)"
        )
    [broker] = urls
    if broker.startswith(SENTINELS):  # certificates must be named in the coordinator's own URL
        return "" if app.conf.broker_use_ssl else through_sentinels(broker, app.conf.broker_transport_options or {})
    try:
        return from_broker(broker, app.conf.broker_use_ssl)
    except ValueError as error:
        raise SettingsError(f"the coordinator cannot use the Redis of {name}: {error}") from None


def add_ours(sender: Celery, **_: object) -> None:
    """Add our values to those of an app that has read its configuration, which win."""
    conf = sender.conf
    ours = _DEFAULTS | (_ON_REDIS if is_redis(conf.broker_url) else {})
    for maps in (conf.maps, conf.defaults):
        maps.insert(-1, ours)  # just above Celery's; `add_defaults` would put them above those of the app's module
    for url, name in (
        (conf.broker_url, "broker_transport_options"),
        (conf.result_backend, "result_backend_transport_options"),
    ):
        if isinstance(url, str | Sequence) and is_redis(url):
            conf[name] = {**_TRANSPORT, **(conf[name] or {})}
        if str(url or "").startswith(SENTINELS):
            conf[name] = {**conf[name], "sentinel_kwargs": {**_SENTINEL, **(conf[name].get("sentinel_kwargs") or {})}}
