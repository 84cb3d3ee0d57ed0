"""Where requests come in: a queue of the app's broker, read without kombu's consumer.

What a node takes lies in its own list, its hand, until it is settled, and the list is the truth: after a lost reply, a
kill or a restart under the same name, the next `take` returns it again. Each entry gets a tag as it is moved, which
stays with it, so that a message that is handled twice can be known by it. Two processes under one node's name, or two
nodes that both believe in each other's death, handle an entry twice at worst.

Keys on the broker's Redis, all behind `global_keyprefix`: `<queue>` and its lists by priority, `<queue>.hand:<node>`,
`<queue>.hands` (the nodes that took something), `<queue>.dead`.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from celery import Celery

from coordinator.errors import SettingsError
from coordinator.store import source

# A connection that swallows everything is given up after these; the app's own values serve other ends.
BOUNDED = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry_on_timeout": False,
    "max_connections": 2,
}
_NAMED = {"global_keyprefix": ""}  # kombu's client would put it before the keys of some commands; here we do, of all
_BYTES = 1024 * 1024


class Entry(NamedTuple):
    """A message in hand; `stored`: as it lies there."""

    tag: str
    message: bytes
    stored: bytes


class Ingress(Protocol):
    """One request queue as one node sees it. Any error: the connection is made anew by the next call."""

    def take(self, most: int) -> list[Entry]:
        """Fill the hand up to `most`; all that is in it, the oldest first."""

    def listen(self, seconds: float) -> None:
        """Until there may be something to take."""

    def settle(self, entry: Entry) -> None:
        """Let go of what was handled."""

    def refuse(self, entry: Entry, letter: str) -> None:
        """Put `letter` aside, then let go of the entry."""

    def others(self) -> set[str]:
        """Nodes that may have something in hand."""

    def adopt(self, node: str) -> int:
        """Take over what a dead node had in hand."""

    def close(self) -> None: ...


def open_ingress(app: Celery, queue: str, node: str) -> Ingress:
    """Raises SettingsError where requests cannot be taken from the app's broker."""
    try:
        with app.connection_for_read() as connection:
            driver = connection.transport.driver_type
    except Exception as error:
        raise SettingsError(f"requests from {queue!r}: the broker's transport cannot be used: {error}") from error
    if driver != "redis":
        raise SettingsError(f"requests from {queue!r}: they are taken from a Redis broker, not from {driver!r}")
    return RedisIngress(app, queue, node)


class RedisIngress:
    """Through the client of a kombu channel, so that the app's URL, TLS and Sentinel settings hold."""

    def __init__(self, app: Celery, queue: str, node: str) -> None:
        self._app = app
        self._node = node
        self._name = f"{app.conf.broker_transport_options.get('global_keyprefix', '')}{queue}"
        self._connection: Any = None
        self._client: Any = None
        self._lists: list[str] = []

    def take(self, most: int) -> list[Entry]:
        self._connect()
        keys = [self._hand(self._node), f"{self._name}.hands", *self._lists]
        found = self._run("inbox_take", keys, self._node, uuid.uuid4().hex, most, _BYTES)
        return [_entry(stored) for stored in found]

    def listen(self, seconds: float) -> None:
        """The first list at once, the others after `seconds`: the last one of a list is put where it was, so nothing
        is ever taken by a reply that is lost."""
        self._connect()
        self._client.execute_command("BLMOVE", self._lists[0], self._lists[0], "RIGHT", "RIGHT", seconds)

    def settle(self, entry: Entry) -> None:
        self._connect()
        self._client.execute_command("LREM", self._hand(self._node), 1, entry.stored)

    def refuse(self, entry: Entry, letter: str) -> None:
        self._run("inbox_refuse", [self._hand(self._node), f"{self._name}.dead"], entry.stored, letter)

    def others(self) -> set[str]:
        self._connect()
        members = self._client.execute_command("SMEMBERS", f"{self._name}.hands")
        return {member.decode() for member in members} - {self._node}

    def adopt(self, node: str) -> int:
        keys = [f"{self._name}.hands", self._hand(node), self._hand(self._node)]
        return int(self._run("inbox_adopt", keys, node, self._node))

    def close(self) -> None:
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _hand(self, node: str) -> str:
        return f"{self._name}.hand:{node}"

    def _run(self, script: str, keys: list[str], *args: str | bytes | int) -> Any:
        self._connect()
        return self._client.execute_command("EVAL", source(script), len(keys), *keys, *args)

    def _connect(self) -> None:
        if self._client is not None:
            return
        self._connection = self._app.connection_for_read(transport_options=BOUNDED | _NAMED)
        self._connection.connect()
        channel = self._connection.channel()
        self._lists = [f"{self._name}{channel.sep}{step}" if step else self._name for step in channel.priority_steps]
        self._client = channel.client


def _entry(stored: bytes) -> Entry:
    tag, _, message = stored.partition(b" ")
    return Entry(tag.decode(), message, stored)
