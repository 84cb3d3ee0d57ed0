"""An inbox, step by step, on a real broker: what is taken, refused, kept, and taken over."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel

from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.inbox import Inbox, register
from tests.coordinator.senders import (
    QUEUE,
    RUBBISH,
    SENDERS,
    STEPS,
    Request,
    Send,
    broker,
    celery,
    key,
    plain,
    push,
)
from tests.fleet import Fleet
from tests.servers import RedisServer
from tests.waiting import wait_until

Make = Callable[..., Inbox[Any]]


class Handler:
    """Notes what it is given; `fault`, while set, is raised instead."""

    def __init__(self, fleet: Fleet) -> None:
        self.given: list[Request] = []
        self.fault: Callable[[Any], None] = lambda request: None
        self._take_in = fleet.shop.take_in

    def __call__(self, request: BaseModel) -> None:
        self.fault(request)
        self._take_in(request)
        self.given.append(request.model_dump(exclude_none=True))

    @property
    def names(self) -> list[str]:
        return [request["name"] for request in self.given]


@pytest.fixture
def handler(fleet: Fleet) -> Handler:
    return Handler(fleet)


@pytest.fixture
def make(fleet: Fleet, handler: Handler) -> Iterator[Make]:
    made: list[Inbox[Any]] = []

    def make(node: str = "one", living: tuple[str, ...] = (), **changes: Any) -> Inbox[Any]:
        given = {"app": fleet.shop.app, "queue": QUEUE, "model": fleet.shop.Request, "handler": handler} | changes
        inbox: Inbox[Any] = Inbox(**given, node=node, living=lambda: living)
        made.append(inbox)
        return inbox

    yield make
    for inbox in made:
        inbox._ingress.close()
    for lane in fleet.coordinator.lanes():
        for job_id in lane.jobs:
            fleet.coordinator.cancel(job_id)


def in_hand(fleet: Fleet, node: str = "one") -> list[bytes | str]:
    with broker(fleet) as client:
        return client.lrange(key(fleet, f".hand:{node}"), 0, -1)


def waiting(fleet: Fleet) -> int:
    with broker(fleet) as client:
        return sum(int(client.llen(key(fleet, step))) for step in STEPS)


def dead(fleet: Fleet) -> list[dict[str, Any]]:
    with broker(fleet) as client:
        return [json.loads(letter) for letter in client.lrange(key(fleet, ".dead"), 0, -1)]


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_a_request_is_taken_from_every_kind_of_sender(fleet: Fleet, make: Make, handler: Handler, send: Send) -> None:
    send(fleet, {"name": "a", "pid": "ä/#", "id": "mine"})
    make().step()
    assert handler.given == [{"name": "a", "pid": "ä/#", "id": "mine"}]
    assert (waiting(fleet), in_hand(fleet), dead(fleet)) == (0, [], [])
    assert fleet.coordinator.job("mine").key == "inbox/a"


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_is_put_aside_whole_with_its_reason(fleet: Fleet, make: Make, handler: Handler, kind: str) -> None:
    message, reason = RUBBISH[kind]
    push(fleet, message)
    plain(fleet, {"name": "good"})
    make().step()
    (letter,) = dead(fleet)
    original = letter["original"]
    assert (base64.b64decode(original) if letter["encoding"] == "base64" else original.encode()) == message
    assert reason in letter["reason"]
    assert letter["reason"].isprintable()
    assert (letter["node"], len(letter["at"])) == ("one", 32)
    assert handler.names == ["good"]
    assert (waiting(fleet), in_hand(fleet)) == (0, [])


class Numbered(BaseModel, extra="forbid"):
    number: int


def test_values_are_read_strictly_whatever_the_model_says(fleet: Fleet, make: Make) -> None:
    given: list[int] = []
    for number in ('"1"', "true", "2"):
        push(fleet, f'{{"number": {number}}}')
    make(model=Numbered, handler=lambda request: given.append(request.number)).step()
    assert given == [2]
    assert len(dead(fleet)) == 2


def test_all_priorities_are_taken_the_most_urgent_first(fleet: Fleet, make: Make, handler: Handler) -> None:
    for step, name in zip(reversed(STEPS), "dcba", strict=True):
        push(fleet, json.dumps({"name": name}), step)
    make().step()
    assert handler.names == ["a", "b", "c", "d"]


def test_requests_are_taken_in_the_order_in_which_they_came(fleet: Fleet, make: Make, handler: Handler) -> None:
    for number in range(150):
        plain(fleet, {"name": f"{number % 3}", "pid": f"{number:03}"})
    inbox = make()
    while waiting(fleet):
        inbox.step()
    assert [request["pid"] for request in handler.given] == [f"{number:03}" for number in range(150)]


def test_a_celery_message_is_known_by_its_own_id(fleet: Fleet, make: Make) -> None:
    celery(fleet, {"name": "a"}, task_id="result-7")
    make().step()
    assert fleet.coordinator.job("result-7").key == "inbox/a"


def test_a_request_handled_again_after_a_kill_has_the_same_id(fleet: Fleet, make: Make, handler: Handler) -> None:
    """Killed after the handler, before the message was let go of: the next inbox of that name is given it again."""
    plain(fleet, {"name": "a"})
    before = make()
    (entry,) = before._ingress.take(1)
    before._handler(before._read(entry))
    make().step()
    assert len(handler.given) == 2
    assert handler.given[0] == handler.given[1]
    assert fleet.coordinator.lane("inbox/a").length == 1
    assert in_hand(fleet) == []


def test_a_refusal_asked_for_twice_leaves_one_letter(fleet: Fleet, make: Make) -> None:
    push(fleet, "rubbish")
    inbox = make()
    (entry,) = inbox._ingress.take(1)
    inbox._take_in(entry)
    inbox._take_in(entry)
    assert len(dead(fleet)) == 1


def test_what_a_dead_node_had_in_hand_is_taken_over_with_its_id(fleet: Fleet, make: Make, handler: Handler) -> None:
    plain(fleet, {"name": "a"})
    plain(fleet, {"name": "b"})
    gone, alive = make("gone"), make("alive")
    (entry,) = gone._ingress.take(1)
    alive._ingress.take(1)
    make("two", living=("alive", "two")).step()
    assert handler.given == [{"name": "a", "id": entry.tag}]
    assert in_hand(fleet, "gone") == []
    assert len(in_hand(fleet, "alive")) == 1
    assert make("two")._ingress.others() == {"alive"}


def test_a_node_that_takes_over_and_dies_is_taken_over_from(fleet: Fleet, make: Make, handler: Handler) -> None:
    plain(fleet, {"name": "a"})
    make("first")._ingress.take(1)
    make("second")._ingress.adopt("first")
    make("third", living=("third",)).step()
    assert handler.names == ["a"]


def test_while_the_store_is_away_requests_stay_in_hand(fleet: Fleet, make: Make, handler: Handler) -> None:
    def away(_: Any) -> None:
        raise StoreUnavailable("away")

    handler.fault = away
    for name in "ab":
        plain(fleet, {"name": name})
    inbox = make()
    assert [inbox.step(), inbox.step(), inbox.step()] == [0.2, 0.4, 0.8]
    assert (len(in_hand(fleet)), dead(fleet)) == (2, [])
    handler.fault = lambda request: None
    inbox.step()
    assert handler.names == ["a", "b"]
    assert in_hand(fleet) == []


def test_a_request_whose_handling_fails_waits_and_holds_up_no_other(fleet: Fleet, make: Make, handler: Handler) -> None:
    def fault(request: Any) -> None:
        if request.name == "bad":
            raise OSError("catalog is busy")

    handler.fault = fault
    for name in ("bad", "good"):
        plain(fleet, {"name": name})
    inbox = make()
    inbox.step()
    assert handler.names == ["good"]
    assert len(in_hand(fleet)) == 1
    handler.fault = lambda request: None
    wait_until(lambda: inbox.step() is not None and not in_hand(fleet))
    assert handler.names == ["good", "bad"]


def test_a_flood_of_rubbish_is_logged_ten_times(fleet: Fleet, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with broker(fleet) as client:
        client.lpush(key(fleet), *["rubbish"] * 500)
    inbox = make()
    with caplog.at_level(logging.INFO, "coordinator.inbox"):
        while waiting(fleet):
            inbox.step()
    assert len(dead(fleet)) == 500
    assert len(caplog.records) == 10


def test_a_name_that_holds_no_list_hurts_nobody(fleet: Fleet, make: Make, handler: Handler) -> None:
    with broker(fleet) as client:
        client.set(key(fleet), "not a list")
        inbox = make()
        assert inbox.step() > 0
        client.delete(key(fleet))
    plain(fleet, {"name": "a"})
    inbox.step()
    assert handler.names == ["a"]


def test_a_broker_without_memory_keeps_what_it_has(own_redis: RedisServer, prefix: str, tmp_path: Path) -> None:
    with Fleet(own_redis, prefix, tmp_path) as fleet:
        given: list[str] = []
        inbox = Inbox(
            fleet.shop.app, QUEUE, fleet.shop.Request, lambda request: given.append(request.name), "one", list
        )
        plain(fleet, {"name": "a"})
        push(fleet, "rubbish")
        inbox._ingress.take(1)
        with broker(fleet) as client:
            client.config_set("maxmemory", 1)
            inbox.step()
            assert (waiting(fleet), len(in_hand(fleet)), dead(fleet)) == (1, 1, [])
            client.config_set("maxmemory", 0)
        inbox.step()
        inbox._ingress.close()
        assert given == ["a"]
        assert len(dead(fleet)) == 1


def test_a_broker_without_requests_is_named_and_ends_nothing(
    make: Make, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    other = Celery("other", broker="memory://", set_as_current=False)
    inbox = Inbox(other, QUEUE, BaseModel, handler, "one", list)
    inbox.start()
    inbox.stop()
    assert "Redis broker, not from 'memory'" in caplog.text


def test_a_model_that_lets_unknown_fields_pass_is_refused() -> None:
    with pytest.raises(SettingsError, match="extra='forbid'"):
        register(Celery("other", set_as_current=False), QUEUE, BaseModel)
