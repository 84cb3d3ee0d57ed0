"""Requests that an inbox refused, in an operator's hands: on Redis, and on RabbitMQ."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.messaging import Producer
from pydantic import BaseModel, ConfigDict

from coordinator import (
    Author,
    Coordinator,
    Forbidden,
    InvalidJob,
    Refused,
    RefusedRequest,
    SettingsError,
    StoreUnavailable,
)
from coordinator.core.author import acting
from coordinator.inbox.inbox import Inbox
from coordinator.inbox.message import MOST
from coordinator.inbox.queue import DEAD, UNREADABLE
from coordinator.inbox.refused import _parsed
from tests.harness.command import Call, listed, loaded, told
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


def test_the_same_letter_is_another_request_in_another_queue_and_in_another_place() -> None:
    letters = [("q", DEAD, b"1"), ("other", DEAD, b"1"), ("q", UNREADABLE, b"1"), ("q", DEAD, b"2"), ("q", DEAD, b"1")]
    assert len({_parsed(*letter).id for letter in letters}) == 4


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    id: str | None = None


class Desk:
    """An app with an inbox, whose handler refuses the names that are not in `known`."""

    def __init__(self, broker: str, redis: str, prefix: str) -> None:
        self.queue = f"{prefix}.desk"
        self.app = Celery("desk", broker=broker, set_as_current=False)
        self.coordinator = Coordinator(self.app, url=redis, prefix=prefix)
        self.coordinator.inbox(self.queue, Request, self.handle)
        self.inbox: Inbox[Any] = Inbox(
            self.app, self.queue, Request, self.handle, "one", lambda: self.coordinator.store
        )
        self.known: set[str] = set()
        self.handled: list[Request] = []

    def handle(self, request: Request) -> None:
        if request.name not in self.known:
            raise Refused(f"unknown name {request.name}")
        self.handled.append(request)

    def send(self, *bodies: str | bytes) -> list[RefusedRequest]:
        """Send what the inbox refuses; what it has put aside then, the newest first."""
        before = len(self.coordinator.refused())
        with self.app.connection_for_write() as connection:
            channel = connection.channel()
            for body in bodies:
                if connection.transport.driver_type == "redis":
                    channel.client.lpush(self.queue, body)
                else:
                    about = {"content_type": "application/json", "content_encoding": "utf-8"}
                    Producer(channel).publish(body, exchange="", routing_key=self.queue, **about)
        self.until(lambda: len(self.coordinator.refused()) == before + len(bodies))
        return self.coordinator.refused()

    def until(self, condition: Any) -> None:
        def stepped() -> bool:
            self.inbox.step()
            return bool(condition())

        wait_until(stepped)

    def close(self) -> None:
        self.inbox._requests.close()
        self.coordinator.close()
        self.app.close()


@pytest.fixture(params=["redis", "rabbitmq"])
def desk(request: pytest.FixtureRequest, redis_server: RedisServer, prefix: str) -> Iterator[Desk]:
    broker = redis_server.url(1)
    if request.param == "rabbitmq":
        server = request.getfixturevalue("rabbitmq_server")
        broker = server.url(server.vhost())
    made = Desk(broker, redis_server.url(0), prefix)
    made.inbox.step()  # it declares its queues
    yield made
    made.close()


def test_a_refused_request_is_shown_counted_requeued_edited_and_discarded(desk: Desk) -> None:
    here = desk.coordinator
    assert (here.refused(), here.refused_counts()) == ([], {})
    assert "request.refused" not in {one.code for one in here.doctor()}
    (first,) = desk.send('{"name": "ann"}')
    assert (first.queue, first.node, first.original, first.encoding) == (desk.queue, "one", '{"name": "ann"}', "utf-8")
    assert (first.reason, first.whole, first.readable) == ("unknown name ann", True, True)
    assert first.at
    desk.send('{"name": "bob"}', "rubbish", '{"name": "' + "x" * MOST + '"}')
    assert here.refused_counts() == {desk.queue: 4}
    [finding] = [one for one in here.doctor() if one.code == "request.refused"]
    assert str(finding) == (
        f"warning [request.refused] (queue {desk.queue}) its inbox refused 4 requests, for an operator to requeue or "
        "discard"
    )
    by_text = {one.original[:15]: one for one in here.refused()}
    assert len(here.refused(2)) == 2
    assert not by_text["rubbish"].readable
    with pytest.raises(InvalidJob, match="only its beginning was kept; give the whole request"):
        here.requeue(by_text['{"name": "xxxxx'].id)
    with pytest.raises(InvalidJob, match="not JSON"):
        here.requeue(by_text["rubbish"].id, "still rubbish")
    desk.known |= {"ann", "carl"}
    assert here.requeue(first.id, why="she is known now", by="op")
    assert not here.requeue(first.id, why="she is known now", by="op")
    assert here.requeue(by_text['{"name": "bob"}'].id, '{"name": "carl"}', by="op")
    assert here.discard(by_text["rubbish"].id, by="op")
    desk.until(lambda: len(desk.handled) == 2)
    assert [request.name for request in desk.handled] == ["ann", "carl"]
    assert here.refused_counts() == {desk.queue: 1}
    assert [(one.act, one.name, one.after) for one in here.actions()[::-1]] == [
        ("requeue", first.id, ""),
        ("requeue", by_text['{"name": "bob"}'].id, "edited"),
        ("discard", by_text["rubbish"].id, ""),
    ]
    assert here.actions()[-1].before == f"{desk.queue}: unknown name ann"


def test_of_many_operators_at_once_one_acts_on_a_refused_request(desk: Desk) -> None:
    (one,) = desk.send('{"name": "ann"}')
    here = desk.coordinator
    with pytest.raises(Forbidden), acting(Author("eve", "viewer")):
        here.requeue(one.id)
    with pytest.raises(Forbidden):
        here.discard(one.id, by=Author("eve", "viewer"))
    assert here.actions() == []

    def act(number: int) -> bool:
        with suppress(InvalidJob):
            return (here.requeue if number % 2 else here.discard)(one.id, by=f"op{number}")
        return False

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(act, range(8)))
    wait_until(lambda: not here.refused())
    assert sum(done) == 1
    (action,) = here.actions()
    assert action.by == f"op{done.index(True)}"
    desk.known.add("ann")
    desk.inbox.step()
    desk.inbox.step()
    assert len(desk.handled) == (action.act == "requeue")


def test_an_act_that_was_cut_short_is_finished_by_its_author_alone(desk: Desk) -> None:
    (one,) = desk.send('{"name": "ann"}')
    here = desk.coordinator
    assert here.acted("requeue", "request", one.id, id=f"refused {one.id}", by="ann"), "and here its process is killed"
    with pytest.raises(InvalidJob, match="another act on it is under way"):
        here.discard(one.id, by="bob")
    assert here.requeue(one.id, by="ann")
    assert [(action.by, action.act) for action in here.actions()] == [("ann", "requeue")]


def test_a_requeue_whose_reply_is_lost_is_done_once(redis_server: RedisServer, prefix: str, proxy: Proxy) -> None:
    desk = Desk(proxy.url(1), redis_server.url(0), prefix)
    (other,) = desk.send('{"name": "bob"}')
    assert desk.coordinator.discard(other.id, by="op"), "now the server has the script, and does not ask for it first"
    (one,) = desk.send('{"name": "ann"}')
    desk.known.add("ann")
    proxy.lose_reply(b'{"name": "ann"}')
    with suppress(StoreUnavailable):  # redis-py may ask once more by itself
        desk.coordinator.requeue(one.id, by="op")
    assert proxy.lost.is_set()
    assert not desk.coordinator.requeue(one.id, by="op")
    desk.until(lambda: desk.handled)
    desk.inbox.step()
    assert (len(desk.handled), len(desk.coordinator.actions())) == (1, 2)
    proxy.cut()
    with pytest.raises(StoreUnavailable, match="the broker of the refused requests"):
        desk.coordinator.refused()
    desk.close()


def test_a_plain_client_has_no_inbox(coordinator: Coordinator) -> None:
    with pytest.raises(SettingsError, match="created without one"):
        coordinator.refused()


DESK = """
import os
from celery import Celery
from coordinator import Coordinator
from tests.coordinator.inbox.test_refused import Request

app = Celery("desk", broker=os.environ["DESK_BROKER"], set_as_current=False)
coordinator = Coordinator(app)
coordinator.inbox(os.environ["COORDINATOR_PREFIX"] + ".desk", Request, print)
"""


def test_the_command_shows_requeues_and_discards_what_status_counts(
    call: Call, redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "desk_app.py").write_text(DESK)
    monkeypatch.setenv("DESK_BROKER", redis_server.url(1))
    desk = Desk(redis_server.url(1), redis_server.url(0), prefix)
    first, second = desk.send('{"name": "ann"}', "rubbish")
    app = ("-A", "desk_app")
    try:
        assert "2 requests: coordinator refused" in told(call(*app, "status"))
        assert loaded(call(*app, "status", "--json"))["refused"] == 2
        assert {one["id"] for one in listed(call(*app, "refused", "--json"))} == {first.id, second.id}
        for one in (first, second):
            assert one.reason in told(call(*app, "refused", one.id))
        by_name = {one.original: one.id for one in (first, second)}
        edited = ("--edited", '{"name": "bob"}', "--why", "mistyped")
        assert told(call(*app, "refused", "requeue", by_name["rubbish"], *edited)).endswith("is in its queue")
        said = told(call(*app, "refused", "discard", by_name['{"name": "ann"}'], "--why", "old"))
        assert said.endswith("is discarded")
        assert "no refused request has the id" in call(*app, "refused", "discard", first.id, "--why", "old").stdout
        assert call(*app, "refused", first.id).exit_code == 2
        assert "refused" not in told(call(*app, "status"))
    finally:
        sys.modules.pop("desk_app", None)
        sys.path.remove(str(tmp_path))
    desk.known.add("bob")
    desk.until(lambda: desk.handled)
    desk.close()
