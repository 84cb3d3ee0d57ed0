"""A request queue of a Redis broker, read without kombu's consumer.

kombu's consumer removes a message from its list before it parses it; a message without kombu's envelope would be lost,
and end the consumer.

`take` moves a message from the queue to the set of taken messages and gives it a tag, by which a handler recognizes a
message that it gets twice. The node that took it has `LEASE` seconds to settle or refuse it; after that the next `take`
of any node returns it again. So a kill, a lost reply or a failing handler loses nothing.

Keys on the broker's Redis, all behind `global_keyprefix`:

    <queue>              its lists, one for each priority
    <queue>.taken        the taken messages that are not settled, scored by the end of their lease
    <queue>.dead         the last 1,000 refused requests
    <queue>.unreadable   the last 1,000 messages that cannot be read as a request
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from celery import Celery
from kombu.connection import Connection

from coordinator.broker import BOUNDED
from coordinator.errors import SettingsError
from coordinator.warden.inbox.message import MOST

_NAMED = {"global_keyprefix": ""}  # kombu's client adds the prefix for some commands only, so we add it ourselves
LEASE = 5.0  # seconds
LETTERS = 1000  # refused messages that are kept, of each kind
DEAD, UNREADABLE = ".dead", ".unreadable"


class TakenMessage(NamedTuple):
    """A message that was taken and not settled; `stored`: by which its queue finds it.

    `size`: its bytes; `message` is the beginning of a longer one. `again`: it was taken before, and not settled.
    """

    tag: str
    message: bytes
    stored: bytes
    size: int
    again: bool


class RequestQueue:
    """Takes and settles messages on a Redis broker. Close it after any error; the next call connects again.

    It uses the client of a kombu channel, so that the app's URL, TLS and Sentinel settings apply.
    """

    def __init__(self, app: Celery, queue: str) -> None:
        self._app = app
        self._name = f"{app.conf.broker_transport_options.get('global_keyprefix', '')}{queue}"
        self._connection: Connection | None = None
        self._client: Any = None
        self._lists: list[str] = []

    def take(self, seconds: float) -> TakenMessage | None:
        """Take a message. If there is none, wait for one, `seconds` at most, and return None.

        The wait is a BLMOVE of the first list onto itself, so that a lost reply takes no message.
        """
        self._connect()
        keys = [f"{self._name}.taken", *self._lists]
        reply = self._run("take", keys, uuid.uuid4().hex, int(LEASE * 1000), MOST)
        if reply:
            name, _, message = reply[0].partition(b" ")
            tag, _, size = name.decode().partition("/")
            return TakenMessage(tag, message, reply[0], int(size), bool(reply[1]))
        self._client.execute_command("BLMOVE", self._lists[0], self._lists[0], "RIGHT", "RIGHT", seconds)
        return None

    def settle(self, received: TakenMessage) -> None:
        """Forget a message that was handled."""
        self._connect()
        self._client.execute_command("ZREM", f"{self._name}.taken", received.stored)

    def refuse(self, received: TakenMessage, letter: str, place: str) -> None:
        """Put `letter` aside, then forget the message."""
        self._connect()
        self._run("refuse", [f"{self._name}.taken", f"{self._name}{place}"], received.stored, letter, LETTERS)

    def close(self) -> None:
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _run(self, script: str, keys: list[str], *args: str | bytes | int) -> Any:
        return self._client.register_script(_text_of(script))(keys, args)

    def _connect(self) -> None:
        if self._client is not None:
            return
        self._connection = self._app.connection_for_read(transport_options=BOUNDED | _NAMED)
        self._connection.connect()
        channel = self._connection.channel()
        self._lists = [f"{self._name}{channel.sep}{step}" if step else self._name for step in channel.priority_steps]
        self._client = channel.client


def driver_of(app: Celery, queue: str) -> str:
    """The kind of the app's broker: redis or amqp. Raises SettingsError for one that has no inbox."""
    try:
        with app.connection_for_read() as connection:
            driver = str(connection.transport.driver_type)
    except Exception as error:
        raise SettingsError(f"queue {queue!r}: cannot use the broker's transport: {error}") from error
    if driver not in ("redis", "amqp"):
        raise SettingsError(f"queue {queue!r}: an inbox needs Redis or RabbitMQ as its broker, this one is {driver!r}")
    return driver


@cache
def _text_of(script: str) -> str:
    """Read a Lua script. It is no function of Redis, since the broker's Redis may be older, or forbid functions."""
    return resources.files("coordinator.warden.inbox").joinpath(f"{script}.lua").read_text(encoding="utf-8")
