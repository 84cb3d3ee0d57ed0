"""Consumes a request queue on a Redis broker, without kombu's consumer.

kombu's consumer removes a message from the queue before it parses the message: a message without kombu's envelope would
be lost, and would end the consumer.

`take` moves a message from the queue to the set of taken messages, and gives the message a tag by which a handler
recognizes a repeat. The node has `LEASE` seconds to settle or refuse the message; after that, the next `take` of any
node returns the message again. So no message is lost by a kill, a lost reply or a failing handler.

Keys on the broker's Redis, all behind `global_keyprefix`:

    <queue>              the lists of waiting messages, one for each priority
    <queue>.taken        the taken messages that are not settled: a sorted set, the score is the end of the lease
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

from coordinator.core.broker import BOUNDED
from coordinator.errors import SettingsError
from coordinator.inbox.message import MOST

# This module adds the prefix to each key, since kombu's client adds it for some commands only.
_NAMED = {"global_keyprefix": ""}
LEASE = 5.0  # seconds in which a taken message must be settled or refused
LETTERS = 1000  # messages that each list of refused messages keeps, the newest
DEAD, UNREADABLE = ".dead", ".unreadable"


class TakenMessage(NamedTuple):
    """A message that a node has taken from a request queue, and must settle or refuse.

    `tag`: the message's id for handlers. `message`: its text, cut where it is longer than 16 KiB; `size`: its bytes
    before the cut. `stored`: its member in the Redis set of taken messages, or its AMQP delivery tag. `again`: True if
    it was delivered before, and not settled.
    """

    tag: str
    message: bytes
    stored: bytes
    size: int
    again: bool


class RequestQueue:
    """Takes messages from a request queue on a Redis broker, and settles or refuses them. Call `close` after any error;
    the next call connects again.

    Commands go over the client of a kombu channel, so that the app's broker URL, TLS and Sentinel settings apply.
    """

    def __init__(self, app: Celery, queue: str) -> None:
        self._app = app
        self._name = f"{app.conf.broker_transport_options.get('global_keyprefix', '')}{queue}"
        self._connection: Connection | None = None
        self._client: Any = None
        self._lists: list[str] = []

    def take(self, seconds: float) -> TakenMessage | None:
        """Take a message from the queue. If none is there, wait until one arrives, for at most `seconds`, and return
        None: the next call takes that message.

        The wait is a BLMOVE from the first list to the same list, so that a lost reply removes no message.
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
        """Acknowledge a handled message, so that it is not delivered again."""
        self._connect()
        self._client.execute_command("ZREM", f"{self._name}.taken", received.stored)

    def refuse(self, received: TakenMessage, letter: str, place: str) -> None:
        """Store `letter`, the JSON about a refused message, in the list `<queue><place>`, and acknowledge the message.

        `place`: `.dead` or `.unreadable`.
        """
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
    """The type of the app's broker: `redis` or `amqp`. Raises SettingsError, which names `queue`, for any
    other broker.
    """
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
    """Read the text of a Lua script of this folder, for EVALSHA. Redis Functions are not used, since the broker's Redis
    may be too old for them, or forbid them.
    """
    return resources.files("coordinator.inbox").joinpath(f"{script}.lua").read_text(encoding="utf-8")
