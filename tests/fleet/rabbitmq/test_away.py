"""RabbitMQ reads nothing, or dies under a beat: nobody who submits waits for it, and no tick is lost."""

import json
from typing import Any

import pytest
from kombu.entity import Queue
from kombu.exceptions import OperationalError

from coordinator.core.broker import CONFIRMED
from coordinator.core.celery_patches.confirmed import confirmed
from coordinator.core.runner.canvas import Caller, Ended, go_on, request_of
from tests.coordinator.scheduler.beats import FAST, Beats, entry, run, source, without_gap
from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.waiting import within

pytestmark = pytest.mark.broker


def test_a_confirmed_publish_says_so_where_the_broker_does_not_answer_and_the_next_one_is_accepted(
    fleet: Fleet, rabbitmq: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIRMED, "read_timeout", 1)
    app, about = fleet.shop.app, {"exchange": "", "routing_key": "kept", "declare": [Queue("kept", "", "kept")]}
    with confirmed(app) as producer:
        producer.publish("before", **about)
    rabbitmq.server.pause()
    try:
        with within(10), pytest.raises(OSError), confirmed(app) as producer:
            producer.publish("lost perhaps", **about)
        assert not producer.connection.connected, "a late answer would confirm the next message"
    finally:
        rabbitmq.server.resume()
    with confirmed(app) as producer:
        producer.publish("after", **about)
    assert {message.body for message in rabbitmq.taken(app, "kept")} >= {"before", "after"}


@pytest.mark.parametrize("state", ["SUCCESS", "FAILURE"])
def test_the_end_of_a_job_is_not_told_where_the_broker_did_not_confirm_its_links_or_errbacks(
    fleet: Fleet, rabbitmq: Broker, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setitem(CONFIRMED, "read_timeout", 1)
    app, note = fleet.shop.app, fleet.shop.note

    def tell(name: str) -> None:
        spec: Any = {"link": [note.si(name)], "link_error": [note.si(name), note.si(f"{name} too")]}
        request = request_of((), {}, "one", Caller(name, note.name, spec), kept=False)
        go_on(app, request, Ended(state, ValueError(name), None), kept=False)

    tell("before")
    rabbitmq.server.pause()
    try:
        with within(20), pytest.raises(OperationalError):
            tell("lost perhaps")
    finally:
        rabbitmq.server.resume()
    tell("after")
    names = {json.loads(message.body)[0][0] for message in rabbitmq.taken(app, "celery")}
    assert names >= ({"before", "after"} if state == "SUCCESS" else {"before", "before too", "after", "after too"})


def test_ticks_of_ordinary_tasks_wait_for_a_broker_that_was_killed_and_none_is_lost(
    redis_server: RedisServer, rabbitmq: Broker, prefix: str
) -> None:
    beats, ids = Beats(redis_server, prefix, misfire_grace=120), list[str]()
    beat = beats.beat(source(entry("a", FAST, key=None, misfire="all", catch_up=1000)), broker=rabbitmq.url)

    def sent() -> list[str]:
        ids.extend(str(message.headers["id"]) for message in rabbitmq.taken(beat.app, prefix))
        return ids

    run(beat, until=sent)
    rabbitmq.server.kill()
    with within(10):
        run(beat, until=lambda: beat._broker_away)
    rabbitmq.server.start()
    before = len(ids)
    run(beat, until=lambda: len(sent()) > before + 3, seconds=60)
    beat.close()
    assert without_gap(dict.fromkeys(ids))  # a message that was taken just before the kill comes again
