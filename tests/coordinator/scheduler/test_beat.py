"""Who takes which tick, what a dead beat leaves behind, and what no beat ends of."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import schedule

from coordinator import SettingsError, Use
from coordinator.core.store.times import instant, to_ms
from coordinator.scheduler.beat import LAPSE, Scheduler
from coordinator.scheduler.entry import next_tick, tick_id
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Every
from coordinator.scheduler.ticks import CLAIM
from tests.coordinator.scheduler.beats import FAST, Beats, entry, instant_of, look_again, run, source, without_gap
from tests.harness.redis import RedisServer


def test_of_any_number_of_beats_one_takes_each_tick(beats: Beats) -> None:
    several = [beats.beat(source(entry())) for _ in range(3)]
    run(*several, until=lambda: len(beats.ids()) >= 6)
    assert without_gap(beats.ids())
    assert next_tick(beats.store, "n") == instant_of(beats.ids()[-1]) + timedelta(seconds=FAST)


def test_a_keyed_entry_is_submitted_with_all_that_it_says(beats: Beats) -> None:
    beat = beats.beat(
        source(entry(args=[1], kwargs={"a": 2, "pids": None}, submit={"priority": 7, "collect": {"how": "merge"}}))
    )
    run(beat, until=lambda: len(beats.ids()) >= 3)
    first, second, third = beats.ids()[:3]
    job = beats.coordinator.job(first)
    assert (job.keys, job.task, job.args, job.kwargs) == (("n",), "sync", (1,), {"a": 2, "pids": None})
    assert [beats.coordinator.job(tick).id for tick in (second, third)] == [first, first]  # they coalesced


def test_an_entry_may_use_quotas_and_stand_in_no_lane(beats: Beats) -> None:
    beats.coordinator.quota("api", concurrency=1)
    beat = beats.beat(source(entry(key=[], submit={"uses": {"api": Use(until="end")}})))
    run(beat, until=lambda: len(beats.ids()) >= 2)
    jobs = [beats.coordinator.job(tick) for tick in beats.ids()[:2]]
    assert [(job.keys, job.uses) for job in jobs] == [((), {"api": Use(until="end")})] * 2
    beats.coordinator.entries.put(entry("stored", 3600, key=[], submit={"uses": {"api": 1}}))
    assert beats.coordinator.entries.entry("stored", 0).key == []


def test_a_tick_that_a_dead_beat_took_and_did_not_send_is_sent_by_another(beats: Beats) -> None:
    daily = entry(schedule="0 0 12 * * ?")
    beat = beats.beat(source(daily))
    beat.tick()
    noon = Quartz("0 0 12 * * ?").next(beats.now() - timedelta(days=1))
    assert noon is not None
    beats.absent("n", noon - timedelta(seconds=1))
    assert beats.take("n", noon, claim=60_000)[0] == b"taken"
    look_again(beat)
    assert beats.ids() == []
    beats.client.zadd(beats.store.key("schedule-unsent"), {"n": 1})
    beats.client.hset(beats.store.key("tick", "n"), "till", 1)
    beat._ticks.grace = timedelta(days=1)
    look_again(beat)
    assert beats.ids() == [tick_id("n", noon)]
    assert "unsent" not in beats.tick("n")
    assert beats.client.zcard(beats.store.key("schedule-unsent")) == 0
    look_again(beat)
    assert len(beats.ids()) == 1


def test_a_tick_that_a_dead_beat_sent_and_did_not_strike_out_is_not_doubled(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    hour = beats.missed_hour()
    beats.take("n", hour, claim=0)
    beats.coordinator.submit("n", beats.app().signature("sync"), job_id=tick_id("n", hour))
    look_again(beat)
    assert beats.ids() == [tick_id("n", hour)]
    assert "unsent" not in beats.tick("n")


def test_while_a_dead_beats_tick_is_unsent_the_next_one_waits_and_then_none_is_missing(beats: Beats) -> None:
    beat = beats.beat(source(entry()))
    run(beat, until=beats.ids)
    taken = instant_of(beats.ids()[-1]) + timedelta(seconds=FAST)
    run(until=lambda: beats.now() > taken)
    assert beats.take("n", taken, claim=3000)[0] == b"taken"
    run(beat, until=lambda: beats.tick("n")["last"] == str(to_ms(taken)) and beats.now() > taken + timedelta(seconds=1))
    assert instant_of(beats.ids()[-1]) < taken
    run(beat, until=lambda: len(beats.ids()) >= 6)
    assert without_gap(beats.ids())


def test_a_beat_that_was_overtaken_strikes_out_nothing_of_its_successors(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    hour = beats.missed_hour()
    beats.take("n", hour, claim=0)
    assert beats.take("n", hour, claim=60_000, token="successor")[0] == b"taken"
    assert beats.store.step("tick_done", "n", to_ms(hour), "dead", "sent", 0, 0, "b", 100) == 0
    assert beats.tick("n")["token"] == "successor"
    assert beats.store.step("tick_done", "n", to_ms(hour), "successor", "sent", 0, 0, "b", 100) == 1


def test_ticks_that_redis_lost_are_sent_again_by_a_beat_that_lives(beats: Beats) -> None:
    """As a failover loses the last moment."""
    beat, keys = beats.beat(source(entry())), beats.store.prefix + "*"
    run(beat, until=lambda: len(beats.ids()) >= 2)
    before = {name: beats.client.dump(name) for name in beats.client.scan_iter(keys, 1000)}
    run(beat, until=lambda: len(beats.ids()) >= 5)
    for name in beats.client.scan_iter(keys, 1000):
        beats.client.delete(name)
    for name, value in before.items():
        beats.client.restore(name, 0, value)
    assert len(beats.ids()) < 5
    run(beat, until=lambda: len(beats.ids()) >= 8)
    assert without_gap(beats.ids())


def test_a_script_asked_again_after_a_lost_reply_answers_the_same(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    hour = beats.missed_hour()
    assert beats.take("n", hour, claim=60_000)[:3] == beats.take("n", hour, claim=60_000)[:3]
    assert beats.take("n", hour, 60_000, token="other")[0] == b"held"
    assert [beats.store.step("tick_done", "n", to_ms(hour), "dead", "sent", 0, 0, "b", 100) for _ in range(2)] == [1, 0]
    assert beats.take("n", hour, claim=60_000)[0] == b"over"
    assert beats.take("n", beats.now() + timedelta(seconds=5), claim=60_000)[0] == b"early"
    assert (
        beats.store.step("tick_take", "n", "outdated", "", to_ms(beats.now()), 0, 0, "t", 1, "", 0, 0, "b", 1)[0]
        == b"stale"
    )
    assert (
        beats.store.step("tick_take", "unknown", "hash", "", to_ms(beats.now()), 0, 0, "t", 1, "", 0, 0, "b", 1)[0]
        == b"stale"
    )


def test_an_ordinary_entry_is_published_under_the_ticks_id(beats: Beats) -> None:
    table = {"n": {"schedule": FAST, "task": "mail", "args": (1,), "options": {"headers": {"x": "y"}}}}
    several = [beats.beat(beat_schedule=table) for _ in range(2)]
    run(*several, until=lambda: len(beats.messages()) >= 4)
    headers = [message["headers"] for message in reversed(beats.messages())]
    assert without_gap(header["id"] for header in headers)
    assert {(header["task"], header["x"], header["celery_beat_task"]) for header in headers} == {("mail", "y", True)}


def test_while_the_broker_is_away_ordinary_ticks_wait_and_keyed_ones_go_on(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    beat = beats.beat(source(entry("a", 1.0, key=None), entry("b")), broker="redis://127.0.0.1:1/0")
    assert run(beat, until=lambda: len(beats.ids()) >= 8) < 3
    assert sum("wait for the broker" in record.message for record in caplog.records) == 1
    assert without_gap(beats.ids())
    unsent = beats.tick("a")["unsent"]
    beat._publisher._app = beats.app()
    run(beat, until=beats.messages)
    assert beats.messages()[-1]["headers"]["id"] == tick_id("a", instant(int(unsent)))


def test_what_was_sent_is_not_sent_again_when_only_striking_it_out_failed(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600, key=None)))
    beat.tick()
    hour = beats.missed_hour()
    beats.take("n", hour, claim=60_000, token=beat._ticks.token)
    (plan,) = beat._readings[1].plans.values()
    plan.unsent = plan.sent = hour
    beat._put(plan)
    beat.tick()
    assert beats.messages() == []
    assert "unsent" not in beats.tick("n")


def test_ticks_missed_while_no_beat_ran_are_one_late_tick(beats: Beats) -> None:
    beats.beat(source(entry(schedule=2))).tick()
    beats.absent("n", beats.now() - timedelta(minutes=5))
    beats.beat(source(entry(schedule=2))).tick()
    (only,) = beats.ids()
    assert beats.now() - instant_of(only) < timedelta(seconds=60)


def test_a_tick_missed_longer_ago_than_the_grace_is_passed_over(beats: Beats, caplog: pytest.LogCaptureFixture) -> None:
    two_hours_ago = beats.now() - timedelta(hours=2)
    daily = entry(schedule=f"{two_hours_ago:%S %M %H} * * ?")
    beats.beat(source(daily)).tick()
    beats.absent("n", beats.now() - timedelta(days=3))
    several = [beats.beat(source(daily)) for _ in range(2)]
    for beat in several * 2:
        look_again(beat)
    assert beats.ids() == []
    assert sum("are not sent" in record.message for record in caplog.records) == 1
    assert instant(int(beats.tick("n")["last"])) == two_hours_ago.replace(microsecond=0)


def test_a_tick_that_could_not_be_sent_within_the_grace_is_passed_over(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    long_ago = instant((to_ms(beats.now()) // 3_600_000 - 2) * 3_600_000)
    beats.absent("n", long_ago - timedelta(seconds=1))
    beats.take("n", long_ago, claim=0)
    look_again(beat)
    assert tick_id("n", long_ago) not in beats.ids()
    assert "older than misfire_grace" in caplog.text
    assert "unsent" not in beats.tick("n")


GOOD = {"schedule": 60, "task": "t"}
BAD: dict[str, Any] = {
    "day of month '*', day of week '*'": GOOD | {"schedule": "0 0 12 * * *"},
    "intervals count from 1970": GOOD | {"schedule": schedule(60, relative=True)},
    "an interval of 0": GOOD | {"schedule": 0},
    "None is no schedule": GOOD | {"schedule": None},
    "the field 'task' is missing": {"schedule": 60},
    "no field 'kye'; did you mean 'key'": GOOD | {"kye": "typo"},
    "has no JSON form": GOOD | {"args": [object()]},
    "'nightly' is no entry": "nightly",
    "args is a list of arguments": GOOD | {"args": "abc"},
    "kwargs must be a mapping": GOOD | {"kwargs": [1]},
    "task is the name of a task": GOOD | {"task": len},
    "a name is 1 to 255 bytes": GOOD | {"name": 5},
    "when_busy": GOOD | {"key": "k", "when_busy": "skp"},
    "are for an entry with a key": GOOD | {"when_busy": "skip"},
    "unexpected option 'prio'": GOOD | {"key": "k", "submit": {"prio": 1}},
    "'a' is named twice": GOOD | {"key": ["a", "a"]},
}


def test_bad_entries_are_named_and_left_out_and_the_others_go_on(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    good = GOOD | {"schedule": FAST, "key": "good"}
    beat = beats.beat(beat_schedule={**BAD, "good": good})
    run(beat, until=beats.ids)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(messages) == len(BAD)
    for bad, sentence in zip(BAD, messages, strict=True):
        assert sentence.startswith("schedule entry ")
        assert bad in sentence.partition(" is left out: ")[2]


def test_a_task_that_the_app_does_not_have_is_named_with_the_one_that_was_meant(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    app = beats.app(beat_schedule={"mail": {"task": "shop.mial", "schedule": 3600}})

    @app.task(name="shop.mail", shared=False)
    def mail() -> None: ...

    Scheduler(app).tick()
    assert "entry 'mail': this app has no task 'shop.mial'; did you mean 'shop.mail'?" in caplog.text
    assert next_tick(beats.store, "mail")


@pytest.mark.parametrize("bad", [{"when_busy": "never"}, {"key": ["a", "a"]}, {"submit": {"prio": 1}}], ids=str)
def test_an_entry_that_cannot_be_sent_is_named_and_the_others_go_on(
    beats: Beats, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    beat = beats.beat(source(entry("bad", FAST, **bad), entry("good")))
    run(beat, until=lambda: len(beats.ids()) >= 3)
    assert {job_id.partition("@")[0] for job_id in beats.ids()} == {"good"}
    assert "tick of bad at" in caplog.text
    assert "unsent" not in beats.tick("bad")


def test_while_redis_is_away_beat_says_so_once_and_then_catches_up(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    beats = Beats(own_redis, "coord", timeout=1)
    beat = beats.beat(source(entry()))
    run(beat, until=beats.ids)
    own_redis.pause()
    run(beat, until=lambda: "beat waits" in caplog.text)
    assert [beat.tick() for _ in range(3)] == [1, 1, 1]
    own_redis.resume()
    run(beat, until=lambda: len(beats.ids()) >= 8)
    assert without_gap(beats.ids())
    assert [sum(words in record.message for record in caplog.records) for words in ("beat waits", "goes on")] == [1, 1]


def test_each_round_with_redis_touches_the_file_that_was_named(
    own_redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beats, sign = Beats(own_redis, "coord", timeout=1), tmp_path / "sign"
    beat = Scheduler(beats.app(), schedule_filename=str(sign))
    run(beat, until=sign.exists)
    own_redis.pause()
    sign.unlink()
    run(beat, until=lambda: "beat waits" in caplog.text)
    assert not sign.exists()
    own_redis.resume()
    run(beat, until=sign.exists)
    caplog.clear()
    Scheduler(beats.app(), schedule_filename=str(tmp_path / "nowhere" / "sign")).tick()
    assert "beat waits" not in caplog.text


class Pausing(list[int]):
    """Arguments that pause the server when they are gone through the second time: first hashed, then submitted."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__([1])
        self.server = server
        self.times = 0

    def __iter__(self) -> Iterator[int]:
        self.times += 1
        if self.times == 2:
            self.server.pause()
        return super().__iter__()


def test_a_job_whose_beat_lost_redis_before_it_asked_is_put_in_line_when_redis_is_back(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    beats = Beats(own_redis, "coord", timeout=1)
    beat = beats.beat(source(entry(args=Pausing(own_redis))))
    run(beat, until=lambda: "beat waits" in caplog.text)
    own_redis.resume()
    due = Every(FAST).next(instant(int(beats.tick("n")["last"])))
    assert due is not None
    run(beat, until=lambda: len(beats.ids()) >= 3)
    assert beats.ids()[0] == tick_id("n", due)
    assert without_gap(beats.ids())
    assert "broker" not in caplog.text


def test_a_beat_starts_while_redis_is_away(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats(own_redis, "coord")
    own_redis.kill()
    beat = beats.beat(source(entry()))
    run(beat, until=lambda: "Connection refused" in caplog.text)
    own_redis.start()
    run(beat, until=beats.ids)
    beat.close()


def test_the_banner_connects_to_nothing_and_shows_no_password(own_redis: RedisServer) -> None:
    app = Beats(own_redis, "coord", url="redis://:secret@127.0.0.1:1/0").app()
    assert "secret" not in Scheduler(app, lazy=True).info


def test_an_app_without_a_coordinator_is_told_what_to_write() -> None:
    with pytest.raises(SettingsError, match="coordinator = Coordinator"):
        Scheduler(Celery("shop", set_as_current=False))


def test_a_dead_beats_tick_is_taken_over_before_a_lag_becomes_a_gap() -> None:
    assert CLAIM + 2 < LAPSE


def test_a_beat_wakes_for_the_next_instant(beats: Beats) -> None:
    beat = beats.beat(source(entry("n", FAST)))
    run(beat, until=beats.ids)
    assert beat.tick() <= FAST


def test_a_late_word_about_an_earlier_tick_strikes_out_no_later_one(beats: Beats) -> None:
    tick = beats.store.key("tick", "n")
    taken = {"source": "s", "hash": "h", "last": 2000, "next": 3000, "unsent": 2000, "token": "t", "till": 2**50}
    beats.client.hset(tick, mapping=taken)
    for at, done in ((1000, 0), (2000, 1), (2000, 0)):
        assert beats.store.step("tick_done", "n", at, "t", "sent", 0, at, "beat", 10) == done
        assert beats.client.hexists(tick, "unsent") == (at == 1000)
