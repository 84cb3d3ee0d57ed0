"""An inbox, step by step, on a real broker: what is taken, refused, kept, and taken over."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel

from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.inbox.inbox import Inbox, register
from coordinator.inbox.message import MOST
from tests.coordinator.inbox.senders import (
    QUEUE,
    RUBBISH,
    SENDERS,
    STEPS,
    Request,
    Send,
    broker,
    celery,
    inbox_of,
    key,
    plain,
    push,
    put_aside,
)
from tests.harness.installation import Installation
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

Make = Callable[..., Inbox[Any]]


class Handler:
    """Notes what it is given; `fault`, while set, is raised instead."""

    def __init__(self, apps: Installation) -> None:
        self.given: list[Request] = []
        self.fault: Callable[[Any], None] = lambda request: None
        self._take_in = apps.shop.take_in

    def __call__(self, request: BaseModel) -> None:
        self.fault(request)
        self._take_in(request)
        self.given.append(request.model_dump(exclude_none=True))

    @property
    def names(self) -> list[str]:
        return [request["name"] for request in self.given]


@pytest.fixture
def handler(apps: Installation) -> Handler:
    return Handler(apps)


@pytest.fixture
def make(apps: Installation, handler: Handler) -> Iterator[Make]:
    made: list[Inbox[Any]] = []

    def make(**changes: Any) -> Inbox[Any]:
        given = {"app": apps.shop.app, "queue": QUEUE, "model": apps.shop.Request, "handler": handler} | changes
        inbox: Inbox[Any] = Inbox(**given, node="one", store=lambda: apps.coordinator.store)
        made.append(inbox)
        return inbox

    yield make
    for inbox in made:
        inbox._requests.close()
    for lane in apps.coordinator.lanes():
        for job_id in lane.jobs:
            apps.coordinator.cancel(job_id)


def received(apps: Installation) -> list[bytes]:
    with broker(apps) as client:
        return client.zrange(key(apps, ".taken"), 0, -1)  # type: ignore[return-value]


def waiting(apps: Installation) -> int:
    with broker(apps) as client:
        return sum(int(client.llen(key(apps, step))) for step in STEPS)


def handle_all(apps: Installation, inbox: Inbox[Any]) -> None:
    while waiting(apps):
        inbox.step()


def end_leases(apps: Installation) -> None:
    with broker(apps) as client:
        client.zadd(key(apps, ".taken"), dict.fromkeys(received(apps), 1))


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_a_request_is_taken_from_every_kind_of_sender(
    apps: Installation, make: Make, handler: Handler, send: Send
) -> None:
    send(apps, {"name": "a", "pid": "ä/#", "id": "mine"})
    make().step()
    assert handler.given == [{"name": "a", "pid": "ä/#", "id": "mine"}]
    assert (waiting(apps), received(apps), put_aside(apps)) == (0, [], [])
    assert apps.coordinator.job("mine").key == "inbox/a"


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_is_put_aside_with_its_reason(apps: Installation, make: Make, handler: Handler, kind: str) -> None:
    message, reason = RUBBISH[kind]
    push(apps, message)
    plain(apps, {"name": "good"})
    handle_all(apps, make())
    (letter,) = put_aside(apps)
    original = letter["original"]
    assert (base64.b64decode(original) if letter["encoding"] == "base64" else original.encode()) == message[:MOST]
    assert reason in letter["reason"]
    assert letter["reason"].isprintable()
    assert (letter["node"], len(letter["at"])) == ("one", 32)
    assert handler.names == ["good"]
    assert (waiting(apps), received(apps)) == (0, [])


class Numbered(BaseModel, extra="forbid"):
    number: int


def test_values_are_read_strictly_whatever_the_model_says(apps: Installation, make: Make) -> None:
    given: list[int] = []
    for number in ('"1"', "true", "2"):
        push(apps, f'{{"number": {number}}}')
    handle_all(apps, make(model=Numbered, handler=lambda request: given.append(request.number)))
    assert given == [2]
    assert len(put_aside(apps)) == 2


def test_all_priorities_are_taken_the_most_urgent_first(apps: Installation, make: Make, handler: Handler) -> None:
    for step, name in zip(reversed(STEPS), "dcba", strict=True):
        push(apps, json.dumps({"name": name}), step)
    handle_all(apps, make())
    assert handler.names == ["a", "b", "c", "d"]


def test_requests_are_taken_in_the_order_in_which_they_came(apps: Installation, make: Make, handler: Handler) -> None:
    for number in range(150):
        plain(apps, {"name": f"{number % 3}", "pid": f"{number:03}"})
    handle_all(apps, make())
    assert [request["pid"] for request in handler.given] == [f"{number:03}" for number in range(150)]


def test_a_celery_message_is_known_by_its_own_id(apps: Installation, make: Make) -> None:
    celery(apps, {"name": "a"}, task_id="result-7")
    make().step()
    assert apps.coordinator.job("result-7").key == "inbox/a"


def test_a_request_that_nobody_settled_in_time_comes_to_another_with_the_same_id(
    apps: Installation, make: Make, handler: Handler
) -> None:
    """Its node was killed after the handler, before it settled the message."""
    plain(apps, {"name": "a"})
    killed, other = make(), make()
    entry = killed._requests.take(1)
    assert entry
    killed._handler(killed._read(entry))
    other.step()
    assert len(handler.given) == 1, "the lease holds"
    end_leases(apps)
    other.step()
    assert handler.given == [{"name": "a", "id": entry.tag}] * 2
    assert apps.coordinator.lane("inbox/a").length == 1
    assert received(apps) == []


def test_a_request_comes_again_also_where_the_clock_went_back(apps: Installation, make: Make, handler: Handler) -> None:
    plain(apps, {"name": "a"})
    make()._requests.take(1)
    with broker(apps) as client:
        client.zincrby(key(apps, ".taken"), 3_600_000, *received(apps))
    make().step()
    assert handler.names == ["a"]


def test_a_refusal_asked_for_twice_leaves_one_letter(apps: Installation, make: Make) -> None:
    push(apps, "rubbish")
    inbox = make()
    entry = inbox._requests.take(1)
    assert entry
    inbox._process(entry)
    inbox._process(entry)
    assert len(put_aside(apps)) == 1


def test_while_the_store_is_away_requests_stay_received(apps: Installation, make: Make, handler: Handler) -> None:
    def away(_: Any) -> None:
        raise StoreUnavailable("away")

    handler.fault = away
    for name in "ab":
        plain(apps, {"name": name})
    inbox = make()
    assert [inbox.step(), inbox.step()] == [0.2, 0.4]
    assert (len(received(apps)), put_aside(apps)) == (2, [])
    handler.fault = lambda request: None
    end_leases(apps)
    inbox.step()
    inbox.step()
    assert sorted(handler.names) == ["a", "b"]
    assert received(apps) == []


def test_a_request_whose_handling_fails_waits_and_holds_up_no_other(
    apps: Installation, make: Make, handler: Handler
) -> None:
    def fault(request: Any) -> None:
        if request.name == "bad":
            raise OSError("catalog is busy")

    handler.fault = fault
    for name in ("bad", "good"):
        plain(apps, {"name": name})
    inbox = make()
    handle_all(apps, inbox)
    assert handler.names == ["good"]
    assert len(received(apps)) == 1
    handler.fault = lambda request: None
    wait_until(lambda: inbox.step() is not None and not received(apps))
    assert handler.names == ["good", "bad"]


def test_a_flood_of_rubbish_is_logged_ten_times(
    apps: Installation, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(apps) as client:
        client.lpush(key(apps), *["rubbish"] * 500)
    inbox = make()
    with caplog.at_level(logging.INFO, "coordinator.inbox"):
        while waiting(apps):
            inbox.step()
    assert len(put_aside(apps)) == 500
    assert len(caplog.records) == 10


def test_a_name_that_holds_no_list_hurts_nobody(apps: Installation, make: Make, handler: Handler) -> None:
    with broker(apps) as client:
        client.set(key(apps), "not a list")
        inbox = make()
        assert inbox.step() > 0
        client.delete(key(apps))
    plain(apps, {"name": "a"})
    inbox.step()
    assert handler.names == ["a"]


def test_a_broker_without_memory_keeps_what_it_has(own_redis: RedisServer, prefix: str) -> None:
    with Installation(own_redis, prefix) as apps:
        given: list[str] = []
        inbox = inbox_of(apps, lambda found: given.append(found.name))
        plain(apps, {"name": "a"})
        push(apps, "rubbish")
        inbox._requests.take(1)
        with broker(apps) as client:
            client.config_set("maxmemory", 1)
            inbox.step()
            assert (waiting(apps), len(received(apps)), put_aside(apps)) == (1, 1, [])
            client.config_set("maxmemory", 0)
        end_leases(apps)
        inbox.step()
        inbox.step()
        inbox._requests.close()
        assert given == ["a"]
        assert len(put_aside(apps)) == 1


def test_a_broker_without_requests_is_named_and_ends_nothing(
    apps: Installation, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    other = Celery("other", broker="memory://", set_as_current=False)
    inbox = Inbox(other, QUEUE, BaseModel, handler, "one", lambda: apps.coordinator.store)
    inbox.start()
    inbox.stop()
    assert "an inbox needs Redis or RabbitMQ as its broker, this one is 'memory'" in caplog.text


def test_a_model_that_lets_unknown_fields_pass_is_refused() -> None:
    with pytest.raises(SettingsError, match="extra='forbid'"):
        register(Celery("other", set_as_current=False), QUEUE, BaseModel)
