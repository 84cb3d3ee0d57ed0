"""A request queue on RabbitMQ, or another broker that speaks AMQP.

The broker itself keeps what a node has received: a message stays its own until the node acknowledges it, and goes back
to the queue when the node's connection ends. A message has a tag of its own only where its sender gave it a
`message_id`; any other gets a new one at each delivery.
"""

from __future__ import annotations

import base64
import json
import uuid
from contextlib import suppress
from typing import Any, Protocol, TypedDict

from celery import Celery
from kombu.connection import Connection

from coordinator.inbox.message import MOST
from coordinator.inbox.queue import Received

_JSON = "application/json"
_RECEIVED = 64  # messages that a node has at a time
_LETTERS = 1000  # refused messages that are kept
_HEARTBEAT = 20  # seconds
_CONNECT = 2.0  # seconds
_ANSWER = {"read_timeout": 5, "write_timeout": 5}  # seconds; a broker that is full answers nothing
_SOON = 0.01  # seconds in which a message that is there arrives
_LONGEST = 200  # characters of a message_id that is a tag


class AmqpProperties(TypedDict, total=False):
    """Those of a message on AMQP that we read."""

    message_id: str
    content_type: str
    application_headers: dict[str, object]


class Delivery(TypedDict):
    """How a message came."""

    delivery_tag: int
    redelivered: bool


class Delivered(Protocol):
    """A message of py-amqp."""

    body: bytes | str | None
    properties: AmqpProperties
    delivery_info: Delivery


class AmqpQueue:
    """One request queue as one node sees it. After any error the next call connects anew.

    The queue is durable; one that exists stays as it is. Refused messages go to `<queue>.dead`.
    """

    def __init__(self, app: Celery, queue: str, node: str) -> None:
        self._app = app
        self._name = queue
        self._tag = f"{node} {uuid.uuid4().hex}"
        self._connection: Connection | None = None
        self._channel: Any = None
        self._received: dict[int, Received] = {}  # by delivery tag

    def take(self, most: int) -> list[Received]:
        """Receive what is there. Returns all that is received, the oldest first, and `most` at most."""
        while len(self._received) < most and self._heard(_SOON):
            pass
        return list(self._received.values())[:most]

    def listen(self, seconds: float) -> None:
        """Wait for a message."""
        self._heard(seconds)

    def settle(self, received: Received) -> None:
        """Forget a message that was handled."""
        self._channel.basic_ack(int(received.stored))
        del self._received[int(received.stored)]

    def refuse(self, received: Received, letter: str) -> None:
        """Put `letter` aside, then forget the message."""
        properties = {"delivery_mode": 2}
        message = self._channel.prepare_message(
            letter, content_type=_JSON, content_encoding="utf-8", properties=properties
        )
        self._channel.basic_publish_confirm(message, exchange="", routing_key=f"{self._name}.dead")
        self.settle(received)

    def others(self) -> set[str]:
        """The broker gives back what a dead node had."""
        return set()

    def adopt(self, node: str) -> int:
        return 0

    def close(self) -> None:
        """The broker gives what was received to any node again."""
        connection, self._connection, self._channel = self._connection, None, None
        self._received.clear()
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _heard(self, seconds: float) -> bool:
        """Whether a message came, or something else of the broker's."""
        connection = self._connect()
        try:
            connection.drain_events(timeout=seconds)
        except TimeoutError:
            connection.heartbeat_check()
            return False
        return True

    def _connect(self) -> Connection:
        if self._connection is None:
            connection = self._connection = self._app.connection_for_read(
                heartbeat=_HEARTBEAT, connect_timeout=_CONNECT, transport_options=_ANSWER
            )
            connection.connect()
            self._declare(f"{self._name}.dead", {"x-max-length": _LETTERS})
            self._declare(self._name)
            self._channel = connection.channel()
            self._channel.basic_qos(0, _RECEIVED, False)
            self._channel.basic_consume(self._name, self._tag, callback=self._receive)
        return self._connection

    def _declare(self, queue: str, arguments: dict[str, int] | None = None) -> None:
        """One that exists may have been declared otherwise."""
        assert self._connection
        try:
            with self._connection.channel() as channel:
                channel.queue_declare(queue, passive=True)
        except self._connection.channel_errors:
            with self._connection.channel() as channel:
                channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)

    def _receive(self, message: Delivered) -> None:
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        given, number = message.properties, message.delivery_info["delivery_tag"]
        again = bool(message.delivery_info["redelivered"])
        tag = given.get("message_id")
        if not (isinstance(tag, str) and 0 < len(tag) <= _LONGEST):
            tag = uuid.uuid4().hex
        self._received[number] = Received(tag, _text(given, body), str(number).encode(), len(body), again)


def _text(given: AmqpProperties, body: bytes) -> bytes:
    """A message as one is found on Redis: JSON as it is, any other in kombu's envelope. A long one is cut."""
    kind, headers = given.get("content_type"), given.get("application_headers") or {}
    if len(body) > MOST or (str(kind or _JSON).startswith(_JSON) and not headers.keys() & {"task", "compression"}):
        return body[:MOST]
    told = {"body": base64.b64encode(body).decode(), "content-type": kind, "headers": headers}
    return json.dumps(told | {"properties": {"body_encoding": "base64"}}, default=str).encode()
