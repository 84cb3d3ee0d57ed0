"""Reconnects a worker that no longer gets replies from its Redis broker.

kombu polls Redis with a BRPOP that returns within a second, with or without a message. On a half-open connection, kombu
below 5.7 waits for ever. A redis-py that is newer than kombu supports may reconnect without kombu's knowledge, which
then stops polling. In both cases the worker looks healthy and receives nothing. So a timer of the worker measures for
how long no reply has come, and then raises a connection error, at which Celery's consumer connects again.
"""

from __future__ import annotations

from collections.abc import Callable

from kombu.connection import Connection
from kombu.transport.redis import Channel

from coordinator.core.broker import is_redis

PATIENCE = 10.0  # seconds without a reply after which to reconnect; kombu 5.7 does the same with our transport options
_READS_ON = (5, 7)  # first version of kombu that notices such connections itself
_UNKNOWN = (6, 5)  # first version of redis-py that kombu 5.6 does not support


class ReplyWatch:
    """Measures for how long no reply to a BRPOP came over the channel of a worker to its Redis broker."""

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
        """Raise ConnectionResetError if no reply has come for more than PATIENCE seconds. A timer of the worker calls
        this every `since` seconds. The time is counted in calls, not by a clock: while the process is suspended, it can
        get no replies.
        """
        waits = self._channel.active_queues and self._channel.qos.can_consume()
        self._silent = self._silent + since if waits and not self._replied else 0.0
        self._replied = False
        patience = PATIENCE + (getattr(self._channel, "brpop_timeout", 1) or 1)  # kombu 5.4 has no brpop_timeout
        if self._silent > patience:
            self._silent = 0.0
            raise ConnectionResetError(f"the broker has not answered for {patience:g} s; connecting again")


def listen(connection: Connection) -> ReplyWatch | None:
    """Make the ReplyWatch for a worker's connection; None where the broker is not Redis, since kombu itself notices the
    loss of other connections.
    """
    channel = connection.default_channel if is_redis(connection) else None
    return ReplyWatch(channel) if isinstance(channel, Channel) else None


def misfit(kombu: str, client: str) -> str:
    """Return a warning if this version of kombu does not support this version of redis-py (`client`), else ""."""
    if _number(kombu) >= _READS_ON or _number(client) < _UNKNOWN:
        return ""
    return (
        f"kombu {kombu} does not know redis-py {client}: after a lost connection to the broker it may stop consuming, "
        f"until the coordinator connects again. Install kombu 5.7 or later, or redis-py below 6.5"
    )


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
