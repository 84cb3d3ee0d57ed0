"""Consumes a request queue on RabbitMQ, or on another broker that speaks AMQP.

Messages are read with py-amqp, since kombu would decompress a message on arrival, to any size. When the connection of a
node ends, the broker delivers the node's unacknowledged messages again, to any node. The tag by which a handler
recognizes a redelivered message is the sender's `message_id`; a message without one gets a new tag at each delivery.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from contextlib import suppress
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from coordinator.core.broker import one_try
from coordinator.inbox.as_it_is import request_queue
from coordinator.inbox.message import MOST
from coordinator.inbox.queue import DEAD, LEASE, LETTERS, UNREADABLE, TakenMessage

_JSON = "application/json"
_RECEIVED = 64  # unacknowledged messages that the broker delivers to a node at most
_HEARTBEAT = 20  # seconds between AMQP heartbeats
_CONNECT = 2.0  # seconds to connect to the broker
_LONGEST = 200  # characters; a longer message_id is not used as a tag


class AmqpQueue:
    """A request queue on AMQP, with the methods of `RequestQueue`: `take` a message, then `settle` or `refuse` it.

    `take` returns a message again if it is neither settled nor refused after `LEASE` seconds. The queue is durable, and
    so are `<queue>.dead` and `<queue>.unreadable`, which keep the refused messages. `node`: the consumer's name.
    """

    def __init__(self, app: Celery, queue: str, node: str) -> None:
        self._app = app
        self._name = queue
        self._tag = f"{node} {uuid.uuid4().hex}"
        self._connection: Connection | None = None
        self._channel: Any = None
        self._received: dict[TakenMessage, float] = {}  # unsettled messages, and when `take` returns each (monotonic)

    def take(self, seconds: float) -> TakenMessage | None:
        connection, now = self._connect(), time.monotonic()
        received = next((unsettled for unsettled, due in self._received.items() if due <= now), None)
        if received is not None:
            self._received[received] = now + LEASE
            return received
        try:
            connection.drain_events(timeout=seconds)
        except TimeoutError:
            connection.heartbeat_check()
        return None

    def settle(self, received: TakenMessage) -> None:
        self._channel.basic_ack(int(received.stored))
        del self._received[received]

    def refuse(self, received: TakenMessage, letter: str, place: str) -> None:
        Producer(self._connect()).publish(
            letter, exchange="", routing_key=f"{self._name}{place}", content_type=_JSON, content_encoding="utf-8"
        )
        self.settle(received)

    def close(self) -> None:
        """Close the connection to the broker, which then delivers the unacknowledged messages again, to any node."""
        connection, self._connection, self._channel = self._connection, None, None
        self._received.clear()
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _connect(self) -> Connection:
        if self._connection is None:
            connection = self._connection = self._app.connection_for_read(
                heartbeat=_HEARTBEAT,
                connect_timeout=_CONNECT,
                transport_options=one_try(self._app.conf.broker_read_url),
            )
            self._channel = connection.channel()
            self._channel.basic_qos(0, _RECEIVED, False)
            queue = request_queue(self._name)(self._channel)
            queue.declare()
            for place in (DEAD, UNREADABLE):
                request_queue(f"{self._name}{place}", LETTERS)(self._channel).declare()
            queue.consume(self._tag, self._receive)
        return self._connection

    def _receive(self, message: Any) -> None:
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        about, delivery = message.properties, message.delivery_info
        tag = about.get("message_id")
        if not (isinstance(tag, str) and 0 < len(tag) <= _LONGEST):
            tag = uuid.uuid4().hex
        text = _text(about.get("content_type"), about.get("application_headers") or {}, body)
        number, again = str(delivery["delivery_tag"]).encode(), bool(delivery["redelivered"])
        self._received[TakenMessage(tag, text, number, len(body), again)] = 0.0


def _text(kind: str | None, headers: dict[str, object], body: bytes) -> bytes:
    """The bytes that a Redis broker would hold for this message, so that `message.read` parses both alike: plain JSON
    unchanged, anything else in kombu's envelope, and a body above 16 KiB cut. `kind`: its content type.
    """
    if len(body) > MOST or (str(kind or _JSON).startswith(_JSON) and not headers.keys() & {"task", "compression"}):
        return body[:MOST]
    envelope = {"body": base64.b64encode(body).decode(), "content-type": kind, "headers": headers}
    return json.dumps(envelope | {"properties": {"body_encoding": "base64"}}, default=str).encode()
