"""Reconnects a worker that no longer gets replies from its Redis broker.

kombu polls Redis with a BRPOP that returns within a second, also empty. kombu below 5.7 waits for ever on a half-open
connection. A redis-py newer than kombu supports may reconnect unnoticed, and then kombu polls no more. In both cases
the worker seems well and reads nothing. So a timer of the worker measures how long no reply came, and then raises a
connection error, at which Celery's consumer connects again.
"""

from __future__ import annotations

from collections.abc import Callable

from kombu.connection import Connection
from kombu.transport.redis import Channel

from coordinator.broker import is_redis

PATIENCE = 10.0  # seconds without a reply, the same as kombu 5.7 with our options
_READS_ON = (5, 7)  # kombu from here on needs no help
_UNKNOWN = (6, 5)  # redis-py from here on is not supported by kombu 5.6


class ReplyWatch:
    """Measures how long a worker's connection got no reply."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._replied = True
        self._silent = 0.0
        read: Callable[[], object] = channel.handlers["BRPOP"]

        def note_and_read() -> object:
            self._replied = True
            return read()

        channel.handlers["BRPOP"] = note_and_read

    def look(self, since: float) -> None:
        """Check for replies; the worker calls this each `since` seconds. Raises ConnectionResetError after too long a
        silence. It counts calls and not the time, since a process that stands still gets no replies.
        """
        waits = self._channel.active_queues and self._channel.qos.can_consume()
        self._silent = self._silent + since if waits and not self._replied else 0.0
        self._replied = False
        patience = PATIENCE + (getattr(self._channel, "brpop_timeout", 1) or 1)  # kombu 5.4 has no brpop_timeout
        if self._silent > patience:
            self._silent = 0.0
            raise ConnectionResetError(f"the broker has not answered for {patience:g} s; connecting anew")


def listen(connection: Connection) -> ReplyWatch | None:
    """Watch a worker's connection; None on a broker other than Redis, where kombu notices a loss itself."""
    channel = connection.default_channel if is_redis(connection) else None
    return ReplyWatch(channel) if isinstance(channel, Channel) else None


def misfit(kombu: str, client: str) -> str:
    """A warning if this version of kombu does not support this version of redis-py, else ''."""
    if _number(kombu) >= _READS_ON or _number(client) < _UNKNOWN:
        return ""
    return (
        f"kombu {kombu} does not know redis-py {client}: after a lost connection to the broker it may stop to consume, "
        f"until the coordinator connects anew. Install kombu 5.7 or later, or redis-py below 6.5"
    )


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
