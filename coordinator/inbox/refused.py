"""The requests that inboxes refused: operators read them, requeue them, as they were or edited, or discard them.

On Redis, one Lua script removes a refused request and puts it into its queue, so that both happen or neither. RabbitMQ
keeps refused requests in a queue. A reader gets all of them without acknowledging, and the broker requeues them in
order when the reader disconnects; two readers at the same time each see only a part. A requeue is a publish and then an
acknowledgement: after a kill in between, the request is in both queues under one `message_id`, so that the inbox gives
both copies the same id. A requeued request loses its priority.
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

from coordinator.core.broker import one_try
from coordinator.errors import InvalidJob, SettingsError, StoreUnavailable
from coordinator.inbox import message
from coordinator.inbox.as_it_is import request_queue
from coordinator.inbox.queue import DEAD, LETTERS, UNREADABLE, RequestQueue, driver_of

PLACES = (DEAD, UNREADABLE)
_CONNECT = 2.0  # seconds to connect to RabbitMQ
_PATIENCE = 5.0  # seconds to wait for a refused request that RabbitMQ has delivered to another reader
_POLL = 0.05  # seconds between two tries in that time


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that an inbox refused. `id`: a hash of the queue and the stored message.

    `at`: when it was refused, None if unknown; `node`: the node that refused it. `original`: the text of the request,
    encoded as `encoding` says: `utf-8` or `base64`. `whole`: False if only the beginning was kept. `readable`: False
    for a message that could not be parsed as a request.
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
        """Get the messages of `<queue><place>` one by one, without acknowledging them: when the channel closes, the
        broker requeues them.
        """
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
        """Do nothing, since each call opens and closes its own connection."""


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()


class RefusedRequests:
    """Reads, requeues and discards the refused requests of an app's request queues. Methods raise SettingsError for a
    broker that is neither Redis nor AMQP, and StoreUnavailable if the broker does not answer.
    """

    def __init__(self, app: Celery, queues: Sequence[str]) -> None:
        self._app, self._queues = app, queues

    def all(self, most: int) -> list[RefusedRequest]:
        """Read the `most` newest refused requests of all queues, the newest first."""
        requests = [parsed for parsed, *_ in self._found(most)]
        return sorted(requests, key=lambda request: request.at.timestamp() if request.at else 0.0, reverse=True)[:most]

    def counts(self) -> dict[str, int]:
        """Count the refused requests of each queue: queue -> number."""
        with self._opened() as queues:
            return {name: queue.count() for name, queue in queues.items()}

    def find(self, request_id: str) -> RefusedRequest | None:
        return next((parsed for parsed, *_ in self._found(LETTERS) if parsed.id == request_id), None)

    def take_out(self, request: RefusedRequest, content: bytes | None) -> bool:
        """Remove a refused request, and put the message `content` into its queue; None: put nothing, so that the
        request is discarded. Returns False if the request is gone.

        On RabbitMQ, another reader may hold the request: then this waits for it, up to 5 seconds.
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
    """Parse `letter`, a message in `<queue><place>`. If no inbox wrote it, the result has a reason that says so."""
    try:
        about = json.loads(letter)
        at, original = datetime.fromisoformat(str(about["at"])), str(about["original"])
    except (ValueError, TypeError, KeyError):
        about, at, original = {"reason": "no inbox wrote this message"}, None, letter.decode(errors="replace")
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
    """The message with which a refused request is requeued: the original, or the JSON `edited` if an operator gives
    one. Raises InvalidJob where the original was cut, or `edited` is no request.
    """
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
