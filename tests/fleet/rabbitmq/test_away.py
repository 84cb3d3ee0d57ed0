"""RabbitMQ reads nothing, or dies under a beat: nobody who submits waits for it, and no tick is lost."""

import json
from typing import Any

import pytest
from kombu.entity import Queue
from kombu.exceptions import OperationalError

from coordinator.broker.doorbells import queue_of
from coordinator.broker.transport import CONFIRMED
from coordinator.celery_patches.confirmed import confirmed
from coordinator.runner.canvas import Caller, Ended, go_on, request_of
from tests.coordinator.scheduler.beats import FAST, Beats, entry, run, source, without_gap
from tests.harness.fleet import Fleet
from tests.harness.rabbitmq import Broker
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until, within

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


def test_a_bell_gives_up_within_seconds_where_the_broker_reads_nothing_and_later_ones_get_through(
    fleet: Fleet, rabbitmq: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    app, bells = fleet.shop.app, fleet.coordinator._doorbells
    with app.connection_for_write() as connection:
        queue_of("one")(connection.channel()).declare()
    bells.ring("one", "first")
    rabbitmq.server.pause()
    try:
        while caplog.text.count("could not ring one") < 3:
            with within(3):
                bells.ring("one", "x" * 200)
    finally:
        rabbitmq.server.resume()

    def arrives() -> bool:
        bells.ring("one", "last")
        return any(message.headers["id"] == "last" for message in rabbitmq.taken(app, queue_of("one").name))

    wait_until(arrives)


def test_idle_slots_work_again_at_once_after_a_broker_that_refused_their_bells(fleet: Fleet, rabbitmq: Broker) -> None:
    fleet.worker("one", 4)
    submit, work = fleet.coordinator.submit, fleet.shop.work
    fleet.coordinator.wait(submit("first", work.s("first", 0)).id, 60)
    rabbitmq.server.refuse(rabbitmq.vhost, 11)
    with within(11 + 3.5):
        ids = [submit(f"k{number}", work.s(str(number), 0.1)).id for number in range(4)]
        jobs = [fleet.coordinator.wait(one, 60) for one in ids]
    begun = [job.started.timestamp() - job.submitted.timestamp() for job in jobs if job.started and job.submitted]
    assert min(begun) > 3, "they were refused"


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
