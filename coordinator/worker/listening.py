"""Does a worker still hear its Redis broker?

kombu asks Redis for messages with a BRPOP that comes back within a second, also empty. Below 5.7 it waits for ever
where a connection went half-open. With a redis-py that is newer than it knows, a connection may be mended beneath it,
and it asks no more. In both cases the worker looks well and reads nothing. So the worker's own timer counts how long
nothing came back; then a connection error has Celery's consumer connect anew.
"""

from __future__ import annotations

from collections.abc import Callable

from kombu.connection import Connection
from kombu.transport.redis import Channel

from coordinator.broker.transport import is_redis

PATIENCE = 10.0  # seconds without an answer, as long as kombu 5.7 has with our options
_READS_ON = (5, 7)  # kombu
_UNKNOWN = (6, 5)  # redis-py; kombu 5.6 declares to know those below


class Listening:
    """A look at one connection of a worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._heard = True
        self._silent = 0.0
        read: Callable[[], object] = channel.handlers["BRPOP"]

        def hear() -> object:
            self._heard = True
            return read()

        channel.handlers["BRPOP"] = hear

    def look(self, since: float) -> None:
        """To be called each `since` seconds. Raises ConnectionResetError where nothing was heard for too long.

        It counts its calls, not the time: while the process stands still, nobody could have heard anything.
        """
        waits = self._channel.active_queues and self._channel.qos.can_consume()
        self._silent = self._silent + since if waits and not self._heard else 0.0
        self._heard = False
        patience = PATIENCE + (getattr(self._channel, "brpop_timeout", 1) or 1)  # kombu 5.4 has none to set
        if self._silent > patience:
            self._silent = 0.0
            raise ConnectionResetError(f"the broker has not answered for {patience:g} s; connecting anew")


def listen(connection: Connection) -> Listening | None:
    """None: the broker is no Redis, and tells kombu itself."""
    channel = connection.default_channel if is_redis(connection) else None
    return Listening(channel) if isinstance(channel, Channel) else None


def misfit(kombu: str, client: str) -> str:
    """A warning of this version of kombu with this one of redis-py, which it does not know; '' where they fit."""
    if _number(kombu) >= _READS_ON or _number(client) < _UNKNOWN:
        return ""
    return (
        f"kombu {kombu} does not know redis-py {client}: after a lost connection to the broker it may stop to consume, "
        f"until the coordinator connects anew. Install kombu 5.7 or later, or redis-py below 6.5"
    )


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
