"""What inboxes refused: operators read it, put it into its queue again, as it was or edited, or discard it.

On Redis one script takes a request from the refused ones and puts it into its queue: both, or neither. RabbitMQ has
refused requests in queues: it lends all of them to a reader, so that two readers at once see a part each, and gives
them back in their order. A requeue there is a publish and then an acknowledgement: a kill between leaves the request in
both places, under one `message_id`, by which the inbox gives both the same id. Neither keeps a request's priority.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import Celery
from kombu.messaging import Producer

from coordinator.broker import one_try
from coordinator.errors import InvalidJob, SettingsError, StoreUnavailable
from coordinator.warden.inbox import message
from coordinator.warden.inbox.as_it_is import request_queue
from coordinator.warden.inbox.queue import DEAD, LETTERS, UNREADABLE, RequestQueue, driver_of

PLACES = (DEAD, UNREADABLE)
_CONNECT, _PATIENCE, _POLL = 2.0, 5.0, 0.05  # seconds


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that an inbox refused. `id`: made of all the rest.

    `original`: its text, or base64 where it is no UTF-8 (`encoding`). `whole`: False where only its beginning was kept.
    `readable`: False for a message that cannot be read as a request at all.
    """

    id: str
    queue: str
    reason: str
    at: datetime | None
    node: str
    original: str
    encoding: str
    whole: bool
    readable: bool


class _OnRedis(RequestQueue):
    def letters(self, place: str, most: int) -> list[bytes]:
        self._connect()
        letters: list[bytes] = self._client.execute_command("LRANGE", f"{self._name}{place}", -most, -1)
        return letters

    def count(self) -> int:
        self._connect()
        return sum(int(self._client.execute_command("LLEN", f"{self._name}{place}")) for place in PLACES)

    def take_out(self, place: str, letter: bytes, content: bytes | None, tag: str) -> bool:
        more = () if content is None else (content,)
        self._connect()
        return bool(self._run("requeue", [f"{self._name}{place}", self._lists[0]], letter, *more))


class _OnRabbit:
    def __init__(self, app: Celery, queue: str) -> None:
        self._app, self._name = app, queue

    def letters(self, place: str, most: int) -> list[bytes]:
        with self._channel() as channel:
            return [_bytes(letter.body) for letter in self._lent(channel, place)][-most:]

    def count(self) -> int:
        with self._channel() as channel:
            queues = (request_queue(f"{self._name}{place}", LETTERS)(channel) for place in PLACES)
            return sum(int(queue.queue_declare(passive=True, channel=channel).message_count) for queue in queues)

    def take_out(self, place: str, letter: bytes, content: bytes | None, tag: str) -> bool:
        with self._channel() as channel:
            lent = next((message for message in self._lent(channel, place) if _bytes(message.body) == letter), None)
            if lent is None:
                return False
            if content is not None:
                producer = Producer(channel.connection.client)
                to = {"exchange": "", "routing_key": self._name, "declare": [request_queue(self._name)]}
                about = {"content_type": "application/json", "content_encoding": "utf-8", "message_id": tag}
                producer.publish(content, **to, **about)
            channel.basic_ack(lent.delivery_info["delivery_tag"])
            return True

    def _lent(self, channel: Any, place: str) -> Iterator[Any]:
        """Take the messages one by one; the broker gets back what is not acknowledged when the channel closes."""
        name = f"{self._name}{place}"
        request_queue(name, LETTERS)(channel).declare()
        while (lent := channel.basic_get(name)) is not None:
            yield lent

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        with self._app.connection_for_read(
            connect_timeout=_CONNECT, transport_options=one_try(self._app.conf.broker_read_url)
        ) as connection:
            yield connection.channel()

    def close(self) -> None:
        """Each call has a connection of its own."""


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()


class RefusedRequests:
    """The refused requests of these queues of an app. Raises SettingsError, and StoreUnavailable for the broker."""

    def __init__(self, app: Celery, queues: Sequence[str]) -> None:
        self._app, self._queues = app, queues

    def all(self, most: int) -> list[RefusedRequest]:
        """Read the newest, the newest first."""
        requests = [parsed for parsed, *_ in self._found(most)]
        return sorted(requests, key=lambda request: request.at.timestamp() if request.at else 0.0, reverse=True)[:most]

    def counts(self) -> dict[str, int]:
        """Count them, by queue."""
        with self._opened() as queues:
            return {name: queue.count() for name, queue in queues.items()}

    def find(self, request_id: str) -> RefusedRequest | None:
        return next((parsed for parsed, *_ in self._found(LETTERS) if parsed.id == request_id), None)

    def take_out(self, request: RefusedRequest, content: bytes | None) -> bool:
        """Put `content` into the queue, or nothing, and forget the refused request. False: it is gone.

        RabbitMQ may have lent it to a reader: then this waits until the reader has given it back.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            for parsed, place, letter in self._found(LETTERS):
                if parsed.id == request.id:
                    with self._opened() as queues:
                        if queues[request.queue].take_out(place, letter, content, request.id):
                            return True
            if driver_of(self._app, request.queue) == "redis" or time.monotonic() > deadline:
                return False
            time.sleep(_POLL)

    def _found(self, most: int) -> list[tuple[RefusedRequest, str, bytes]]:
        with self._opened() as queues:
            return [
                (_parsed(name, place, letter), place, letter)
                for name, queue in queues.items()
                for place in PLACES
                for letter in queue.letters(place, most)
            ]

    @contextmanager
    def _opened(self) -> Iterator[dict[str, _OnRedis | _OnRabbit]]:
        kind = _OnRedis if self._queues and driver_of(self._app, self._queues[0]) == "redis" else _OnRabbit
        queues = {name: kind(self._app, name) for name in self._queues}
        try:
            yield queues
        except (SettingsError, InvalidJob):
            raise
        except Exception as error:
            raise StoreUnavailable(f"the broker of the refused requests: {type(error).__name__}: {error}") from error
        finally:
            for queue in queues.values():
                queue.close()


def _parsed(queue: str, place: str, letter: bytes) -> RefusedRequest:
    """Read a letter; anybody may have put another thing there."""
    try:
        about = json.loads(letter)
        at, original = datetime.fromisoformat(str(about["at"])), str(about["original"])
    except (ValueError, TypeError, KeyError):
        about, at, original = {"reason": "this is no refused request"}, None, letter.decode(errors="replace")
    return RefusedRequest(
        id=hashlib.sha256(b"\0".join((queue.encode(), place.encode(), letter))).hexdigest()[:16],
        queue=queue,
        reason=str(about.get("reason", "")),
        at=at,
        node=str(about.get("node", "")),
        original=original,
        encoding=str(about.get("encoding", "utf-8")),
        whole="size" not in about,
        readable=place == DEAD,
    )


def content_of(request: RefusedRequest, edited: str | None) -> bytes:
    """The message to put into the queue. Raises InvalidJob for one that the inbox could not read."""
    way = "give the whole request: --edited '{…}'"
    if edited is None and not request.whole:
        raise InvalidJob(f"refused request {request.id}: it was too long, and only its beginning was kept; {way}")
    try:
        if edited is None and request.encoding == "base64":
            return base64.b64decode(request.original, validate=True)
        content = (request.original if edited is None else edited).encode()
        if edited is not None:
            message.read(content, request.queue, len(content))
    except ValueError as error:
        raise InvalidJob(f"refused request {request.id}: {error}; {way}") from error
    return content
