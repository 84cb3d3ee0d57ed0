"""Finds out the type of an app's broker, and sets the options of the connections to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from coordinator.core.address import from_broker, provider_in, through_sentinels
from coordinator.core.settings import Settings
from coordinator.errors import SettingsError

if TYPE_CHECKING:
    from celery import Celery
    from kombu.connection import Connection

REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+socket://")
SENTINELS = "sentinel://"
AMQP_SCHEMES = ("amqp://", "amqps://", "pyamqp://")

# Options of the coordinator's own connections to a Redis broker, so that a broker that accepts connections but never
# answers blocks no thread. Workers consume with the options of the app.
BOUNDED = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry_on_timeout": False,
    "max_connections": 2,
}

# Seconds, for AMQP: a broker that does not read would block a publisher once the buffers of the socket are full.
_BRIEF = {"read_timeout": 1, "write_timeout": 1}

_ONE_TRY = {"socket_timeout": 1, "socket_connect_timeout": 1}

# Options with which a publish to AMQP returns only once the broker has the message (on disk, if the queue is durable).
CONFIRMED = {"confirm_publish": True, "read_timeout": 5, "write_timeout": 5}

# Transport options for Redis with which a process notices a half-open connection. The app's own settings override them.
_TRANSPORT = {"socket_timeout": 5, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 5}

_DEFAULTS = {
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # a worker that has lost its broker reconnects without end
    "worker_consumer": "coordinator.core.worker.bootstep:Consumer",
}

# With a Redis broker, a worker fetches an ordinary task only for a free slot, and does not end if the broker is full.
_ON_REDIS = {"worker_disable_prefetch": True, "broker_channel_error_retry": True}

# Options for connections to sentinels: an unreachable sentinel costs one second instead of the ten tries of redis-py.
_SENTINEL = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": None}


def brokers(url: object) -> list[str]:
    """Return the addresses in the value of Celery's `broker_url`: one, or several for kombu's failover. A list of
    sentinels is one address.
    """
    if isinstance(url, str):
        return [url] if url.startswith(SENTINELS) else url.split(";")
    return [str(one) for one in url] if isinstance(url, Sequence) else []


def is_redis(broker: str | Sequence[str] | Connection | None) -> bool:
    """True if `broker`, a URL, a list of URLs (of which the first counts) or a connection, is a Redis."""
    transport = getattr(broker, "transport", None)
    if transport is not None:
        return bool(transport.driver_type == "redis")
    return "".join(brokers(broker)[:1]).startswith((*REDIS_SCHEMES, SENTINELS))


def is_amqp(broker: str | Sequence[str] | None) -> bool:
    """True if `broker`, a URL or a list of URLs (of which the first counts), is RabbitMQ or another AMQP 0.9.1 broker.
    None and "" count as AMQP, as in Celery.
    """
    return ("".join(brokers(broker)[:1]) or "amqp://").startswith(AMQP_SCHEMES)


def one_try(broker: str | Sequence[str] | None) -> dict[str, object]:
    """Return transport options with which kombu tries each address in `broker` once. For AMQP, also those with which
    the broker confirms each publish.
    """
    return _each_once(broker) | (CONFIRMED if is_amqp(broker) else {})


def _each_once(broker: str | Sequence[str] | None) -> dict[str, object]:
    return {"max_retries": max(len(brokers(broker)) - 1, 0)}


def brief_connection(app: Celery) -> Connection:
    """Return a connection for publishing to the app's broker that gives up within a second (kombu's default is six)."""
    broker = app.conf.broker_write_url
    tries = _each_once(broker)
    if is_amqp(broker):
        return cast("Connection", app.connection_for_write(connect_timeout=1, transport_options=_BRIEF | tries))
    options = _ONE_TRY | tries if is_redis(broker) else tries
    return cast("Connection", app.connection_for_write(transport_options=options))


def settings_of(app: Celery | None, arguments: Mapping[str, object]) -> Settings:
    """Read the settings of a coordinator from `arguments`, the app's configuration and the environment. If none names a
    Redis, and the app's broker is one, the coordinator uses the broker. Raises SettingsError.
    """
    conf, namespace = (app.conf, app.namespace or "celery") if app else ({}, "")
    settings = Settings.load(arguments, conf, os.environ, namespace)
    urls = brokers(app.conf.broker_url) if app else []
    if any("cluster" in url.partition("://")[0] for url in urls):  # kombu would silently connect to localhost
        raise SettingsError(
            "the broker's URL names a Redis Cluster, which Celery cannot use as a broker: name a single Redis or "
            "Valkey, one behind Sentinel, or RabbitMQ"
        )
    if app and not settings.url and is_redis(urls):
        name = "CELERY_BROKER_URL" if os.environ.get("CELERY_BROKER_URL") else "broker_url"
        given = {"url": _url_from_broker(app, name, urls)}
        if not settings.password_file and (provider := provider_in(urls[0])):
            given["credential_provider"] = provider
        settings = Settings.load(arguments, conf, os.environ, namespace, (name, given))
    return settings


def _url_from_broker(app: Celery, name: str, urls: Sequence[str]) -> str:
    """Convert the address of the app's Redis broker into the form of `coordinator_url`. Returns "" for sentinels over
    TLS, or without a name of the master: then the app must set `coordinator_url` itself.

    `name`: the setting with the addresses `urls`, for errors. Raises SettingsError for several addresses, and for one
    that cannot be read.
    """
    if len(urls) > 1:
        raise SettingsError(
            f"{name} names {len(urls)} brokers, and the coordinator keeps its jobs in one Redis: name that one in "
            "coordinator_url (COORDINATOR_URL)"
        )
    [broker] = urls
    if broker.startswith(SENTINELS):  # for TLS, the app must name the certificates in coordinator_url
        return "" if app.conf.broker_use_ssl else through_sentinels(broker, app.conf.broker_transport_options or {})
    try:
        return from_broker(broker, app.conf.broker_use_ssl)
    except ValueError as error:
        raise SettingsError(f"the coordinator cannot use the Redis of {name}: {error}") from None


def add_ours(sender: Celery, **_: object) -> None:
    """Add the library's defaults to the configuration of the app `sender`, which overrides them. A handler of Celery's
    signal `on_after_configure`.
    """
    conf = sender.conf
    ours = _DEFAULTS | (_ON_REDIS if is_redis(conf.broker_url) else {})
    for maps in (conf.maps, conf.defaults):
        maps.insert(-1, ours)  # overrides Celery's defaults only; `add_defaults` would override the app's module, too
    for url, name in (
        (conf.broker_url, "broker_transport_options"),
        (conf.result_backend, "result_backend_transport_options"),
    ):
        if isinstance(url, str | Sequence) and is_redis(url):
            conf[name] = {**_TRANSPORT, **(conf[name] or {})}
        if str(url or "").startswith(SENTINELS):
            conf[name] = {**conf[name], "sentinel_kwargs": {**_SENTINEL, **(conf[name].get("sentinel_kwargs") or {})}}
