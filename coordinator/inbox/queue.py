"""A request queue of a Redis broker, read without kombu's consumer.

A node moves messages from the queue to a list of its own. There a message counts as received, until the node settles
or refuses it. That list is the truth: after a lost reply, a kill or a restart under the same name, the next `take`
returns the message again. Redis gives each message a tag when it moves it. The tag stays with the message, so that a
handler can recognize one that it gets twice. Two processes under one node's name, or two nodes that each believe the
other dead, handle a message twice at worst.

Keys on the broker's Redis, all behind `global_keyprefix`:

    <queue>                its lists, one for each priority
    <queue>.hand:<node>    the messages that this node has received (an old name, kept for nodes of an older version)
    <queue>.hands          the nodes that have received messages
    <queue>.dead           the last 1,000 refused messages
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from celery import Celery
from kombu.connection import Connection

from coordinator.broker.transport import BOUNDED
from coordinator.inbox.message import MOST

_NAMED = {"global_keyprefix": ""}  # kombu's client puts it before the keys of some commands only: we do, of all
_BYTES = 1024 * 1024  # no further message is taken once so many bytes are received
_LETTERS = 1000  # refused messages that are kept


class Received(NamedTuple):
    """A message that this node has received and not settled; `stored`: its text in the node's list.

    `size`: in bytes; `message` has no more than the beginning of one that is too long. `again`: it was received
    before, by a process that is gone or by a connection that was lost.
    """

    tag: str
    message: bytes
    stored: bytes
    size: int
    again: bool = False


class RequestQueue:
    """One request queue as one node sees it. After any error the next call connects anew.

    It uses the client of a kombu channel, so that the app's URL, TLS and Sentinel settings hold.
    """

    def __init__(self, app: Celery, queue: str, node: str) -> None:
        self._app = app
        self._node = node
        self._name = f"{app.conf.broker_transport_options.get('global_keyprefix', '')}{queue}"
        self._connection: Connection | None = None
        self._client: Any = None
        self._lists: list[str] = []
        self._life, self._takes = uuid.uuid4().hex, 0

    def take(self, most: int) -> list[Received]:
        """Receive messages until there are `most`. Returns all that are received, the oldest first."""
        self._connect()
        keys = [self._own(self._node), f"{self._name}.hands", *self._lists]
        self._takes += 1
        found = self._run("take", keys, self._node, f"{self._life}{self._takes}", most, _BYTES, MOST)
        return [_received(stored, self._life) for stored in found]

    def listen(self, seconds: float) -> None:
        """Wait for a message in the first list; after `seconds`, another list may have one.

        Redis puts the message back where it was, so a lost reply takes nothing.
        """
        self._connect()
        self._client.execute_command("BLMOVE", self._lists[0], self._lists[0], "RIGHT", "RIGHT", seconds)

    def settle(self, received: Received) -> None:
        """Forget a message that was handled."""
        self._connect()
        self._client.execute_command("LREM", self._own(self._node), 1, received.stored)

    def refuse(self, received: Received, letter: str) -> None:
        """Put `letter` aside, then forget the message."""
        self._run("refuse", [self._own(self._node), f"{self._name}.dead"], received.stored, letter, _LETTERS)

    def others(self) -> set[str]:
        """The other nodes that may have received messages."""
        self._connect()
        members = self._client.execute_command("SMEMBERS", f"{self._name}.hands")
        return {member.decode() for member in members} - {self._node}

    def adopt(self, node: str) -> int:
        """Receive what a dead node had received. Returns how many messages."""
        keys = [f"{self._name}.hands", self._own(node), self._own(self._node)]
        return int(self._run("adopt", keys, node, self._node))

    def close(self) -> None:
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _own(self, node: str) -> str:
        return f"{self._name}.hand:{node}"

    def _run(self, script: str, keys: list[str], *args: str | bytes | int) -> Any:
        self._connect()
        return self._client.register_script(_text_of(script))(keys, args)

    def _connect(self) -> None:
        if self._client is not None:
            return
        self._connection = self._app.connection_for_read(transport_options=BOUNDED | _NAMED)
        self._connection.connect()
        channel = self._connection.channel()
        self._lists = [f"{self._name}{channel.sep}{step}" if step else self._name for step in channel.priority_steps]
        self._client = channel.client


@cache
def _text_of(script: str) -> str:
    """A plain script, not a function: this Redis may be older, or forbid functions."""
    return resources.files("coordinator.inbox").joinpath(f"{script}.lua").read_text(encoding="utf-8")


def _received(stored: bytes, life: str) -> Received:
    name, _, message = stored.partition(b" ")
    tag, _, size = name.decode().partition("/")
    return Received(tag, message, stored, int(size or len(message)), not tag.startswith(life))
