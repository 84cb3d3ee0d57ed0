"""Everybody who may put something on a request queue: with our code, with kombu or Celery, with a bare Redis client."""

import base64
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer
from kombu.simple import SimpleQueue

from coordinator.inbox.inbox import Inbox
from coordinator.inbox.queue import DEAD, UNREADABLE
from tests.harness.installation import Installation

QUEUE = "shop.refresh"
STEPS = ("", "\x06\x163", "\x06\x166", "\x06\x169")

Request = dict[str, Any]
Send = Callable[[Installation, Request], object]


def key(apps: Installation, suffix: str = "") -> str:
    return f"{apps.prefix}.{QUEUE}{suffix}"


@contextmanager
def broker(apps: Installation) -> Iterator["redis.Redis"]:
    with redis.Redis(port=apps.server.port, db=1) as client:
        yield client


def inbox_of(apps: Installation, handler: Callable[[Any], object], app: Any = None, node: str = "one") -> Inbox[Any]:
    """The requests of the shop, taken by hand; `app`: one with another way to the broker."""
    shop = apps.shop
    return Inbox(app or shop.app, QUEUE, shop.Request, handler, node, lambda: shop.coordinator.store)


def push(apps: Installation, message: str | bytes, step: str = "") -> None:
    with broker(apps) as client:
        client.lpush(key(apps, step), message)


def plain(apps: Installation, request: Request) -> None:
    push(apps, json.dumps(request))


@contextmanager
def _kombu(apps: Installation) -> Iterator[Connection]:
    options = {"global_keyprefix": f"{apps.prefix}."}
    with Connection(apps.environ["TEST_BROKER"], transport_options=options) as connection:
        yield connection


def producer(apps: Installation, request: Request, **options: Any) -> None:
    with _kombu(apps) as connection:
        Producer(connection.channel()).publish(request, exchange="", routing_key=QUEUE, serializer="json", **options)


def urgent(apps: Installation, request: Request) -> None:
    producer(apps, request, priority=9)


def simple_queue(apps: Installation, request: Request) -> None:
    with _kombu(apps) as connection, SimpleQueue(connection.channel(), QUEUE) as queue:
        queue.put(request, serializer="json")


def celery(apps: Installation, request: Request, **options: Any) -> None:
    """An app that knows nothing of ours."""
    app = Celery("stranger", broker=apps.environ["TEST_BROKER"], set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{apps.prefix}."}
    app.send_task(QUEUE, kwargs=request, queue=QUEUE, ignore_result=True, **options)
    app.close()


def our_app(apps: Installation, request: Request) -> None:
    """Routed to the queue without being told."""
    apps.shop.app.send_task(QUEUE, kwargs=request, ignore_result=True)


def envelope(body: Any, **changes: Any) -> bytes:
    """The smallest that kombu reads."""
    properties = {"delivery_tag": "1", "delivery_info": {"exchange": "", "routing_key": QUEUE}}
    whole = {"body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": {}}
    return json.dumps(whole | {"properties": properties} | changes).encode()


def foreign_envelope(apps: Installation, request: Request) -> None:
    push(apps, envelope(json.dumps(request)))


WITH_KOMBU: list[Send] = [producer, urgent, simple_queue, celery, our_app]  # to any broker
SENDERS: list[Send] = [plain, *WITH_KOMBU, foreign_envelope]

_PICKLE = base64.b64encode(pickle.dumps({"name": "x"})).decode()
_OK = '{"name": "x"}'
_TASK = {"headers": {"task": QUEUE, "id": "1"}}

# What is wrong with it → the message, and what the reason says.
RUBBISH: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"hello", "not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "not UTF-8"),
    "a bare number": (b"42", "a JSON object, not int"),
    "an empty string": (b"", "not JSON"),
    "a megabyte": (b'{"name": "' + b"x" * 1_000_000 + b'"}', "at most 16384"),
    "just too long": (b'{"name": "' + b"x" * 16384 + b'"}', "at most 16384"),
    "a pickle": (pickle.dumps({"name": "x"}), "not JSON"),
    "deep": (b"[" * 16000, "not JSON"),
    "a huge number": (b'{"name": ' + b"9" * 16000 + b"}", "not JSON"),
    "a list": (b"[]", "a JSON object, not list"),
    "wrong type": (b'{"name": 1}', "name: Input should be a valid string"),
    "unknown field": (b'{"name": "x", "nam\\u001be": "y"}', "Extra inputs"),
    "field missing": (b"{}", "name: Field required"),
    "half a surrogate": (b'{"name": "\\ud800"}', "JSON"),
    "refused by the handler": (b'{"name": "nobody"}', "unknown name nobody"),
    "an id that no job can have": (b'{"name": "x", "id": "a\\nb"}', "job_id"),
    "envelope without a body": (envelope(None), "the body must be a string"),
    "envelope around nothing": (envelope(""), "not JSON"),
    "envelope with a list for headers": (envelope(_OK, headers=["x"]), "headers must be a JSON object"),
    "envelope with a text for properties": (envelope(_OK, properties="x"), "properties must be a JSON object"),
    "envelope without its type": (envelope(_OK, **{"content-type": None}), "only application/json"),
    "envelope with half a surrogate": (envelope("\ud800"), "not UTF-8"),
    "envelope, pickled": (
        envelope(_PICKLE, **{"content-type": "application/x-python-serialize"}, properties={"body_encoding": "base64"}),
        "only application/json",
    ),
    "envelope, said to be JSON, pickled": (envelope(_PICKLE, properties={"body_encoding": "base64"}), "not UTF-8"),
    "envelope, not base64": (envelope("%%%", properties={"body_encoding": "base64"}), "not base64"),
    "envelope, compressed": (envelope(_OK, headers={"compression": "application/x-gzip"}), "compressed"),
    "another task": (envelope("[[], {}, {}]", headers={"task": "other"}), "a message of the task 'other'"),
    "a task message of two parts": (envelope("[[], {}]", **_TASK), "[args, kwargs, options]"),
    "positional": (envelope('[["x"], {}, {}]', **_TASK), "by name"),
    "a chain": (envelope('[[], {"name": "x"}, {"chain": [{}]}]', **_TASK), "cannot honour chain"),
    "later": (envelope(f"[[], {_OK}, {{}}]", headers={**_TASK["headers"], "eta": "2999"}), "cannot honour eta"),
    "unknown field in a task message": (envelope('[[], {"name": "x", "y": 1}, {}]', **_TASK), "y: Extra inputs"),
}  # fmt: skip


def put_aside(apps: Installation) -> list[dict[str, Any]]:
    with broker(apps) as client:
        found = [one for place in (DEAD, UNREADABLE) for one in client.lrange(key(apps, place), 0, -1)]
        return [json.loads(letter) for letter in found]


def letters(apps: Installation) -> int:
    return len(put_aside(apps))
