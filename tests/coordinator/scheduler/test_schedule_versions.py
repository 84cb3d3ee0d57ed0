"""Whose schedule counts, from when, and what becomes of entries that change."""

import time
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from coordinator.core.store.times import instant, milliseconds, to_ms
from coordinator.scheduler.beat import LAPSE, Scheduler
from coordinator.scheduler.entry import Entry, next_tick
from tests.coordinator.scheduler.beats import (
    FAST,
    Beats,
    entry,
    instant_of,
    look_again,
    pass_time,
    run,
    source,
    without_gap,
)
from tests.harness.redis import RedisServer


def test_a_new_or_changed_schedule_counts_from_the_change(beats: Beats) -> None:
    given = [entry("a", 3600)]
    beat = beats.beat(lambda: (str(given), given))
    beat.tick()
    beats.absent("a", beats.now() - timedelta(days=1))
    given[:] = [entry("a", 1800), entry("b", 1800)]
    look_again(beat)
    assert beats.ids() == []
    for name in "ab":
        assert beats.now() - instant(int(beats.tick(name)["last"])) < timedelta(seconds=60)


def test_an_unchanged_entry_keeps_its_last_instant_and_a_removed_one_vanishes(beats: Beats) -> None:
    given = [entry("a", 3600), entry("b", 3600)]
    beat = beats.beat(lambda: (str(given), given))
    beat.tick()
    before = beats.tick("a")
    del given[1]
    look_again(beat)
    assert beats.tick("a") == before
    assert beats.tick("b") == {}
    assert next_tick(beats.store, "b") is None
    assert beats.client.smembers(beats.store.key("schedule-entries", beat._readings[1].name)) == {b"a"}


@pytest.mark.parametrize("misfire", ["once", "all", "skip"])
def test_a_new_version_with_the_same_entries_changes_nothing(
    beats: Beats, misfire: str, caplog: pytest.LogCaptureFixture
) -> None:
    versions = ["1"]
    beat = beats.beat(lambda: (versions[0], [entry("a", 1, misfire=misfire), entry("b", 3600)]))
    beat.tick()
    before = beats.tick("b")
    for version in ("2", "3"):
        versions[0] = version
        run(until=lambda: beats.now() > instant(int(beats.tick("a")["last"])) + timedelta(seconds=1))
        began = time.monotonic()
        look_again(beat)
        assert time.monotonic() - began < 10
    assert beats.tick("b") == before
    count = len(beats.ids())
    run(beat, until=lambda: len(beats.ids()) >= count + 2)
    assert without_gap(beats.ids(), 1)
    assert not caplog.records


def test_a_version_that_went_and_came_back_while_redis_was_away_changes_nothing(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    beats, given = Beats(own_redis, "coord", timeout=1), [entry("a", 1), entry("b", 3600)]
    former = given[0]
    beat = beats.beat(lambda: (str(given), given))
    run(beat, until=beats.ids)
    own_redis.pause()
    given[0] = entry("a", 3600)
    look_again(beat)
    assert "beat waits" in caplog.text
    given[0] = former
    look_again(beat)
    own_redis.resume()
    count = len(beats.ids())
    run(beat, until=lambda: len(beats.ids()) >= count + 2)
    assert without_gap(beats.ids(), 1)
    assert "missed" not in caplog.text


def test_a_beat_that_followed_another_knows_the_schedule_that_operators_gave_meanwhile(beats: Beats) -> None:
    first, second = ([entry("a", 3600), entry("n", seconds)] for seconds in (3600, 1800))
    current = beats.beat(source(*first))
    current.tick()
    follower = beats.beat(source(*second))
    look_again(follower)
    beats.coordinator.entries.change("a", FAST)
    look_again(follower)
    beats.client.hset(beats.store.key("schedule", follower._readings[1].name), "seen", 0)
    run(follower, until=lambda: len(beats.ids()) >= 2)


def test_an_entry_that_moves_to_another_source_keeps_its_last_instant(beats: Beats) -> None:
    one, other = [entry("a", 3600)], [entry("b", 3600)]

    def first() -> tuple[str, Iterable[Entry]]:
        return str(one), one

    def second() -> tuple[str, Iterable[Entry]]:
        return str(other), other

    beat = beats.beat(second, first)
    beat.tick()
    beats.absent("a", since := beats.now() - timedelta(seconds=1))
    other.append(one.pop())
    look_again(beat)
    assert beats.tick("a")["last"] == str(to_ms(since))
    assert beats.tick("a")["source"].endswith("second")


def test_two_beats_with_two_versions_never_take_turns(beats: Beats) -> None:
    """Only a beat that confirmed the current version of a source moves it."""
    texts = {"old": "1", "new": "1"}

    def beat_that_reads(which: str) -> Scheduler:
        def members() -> tuple[str, Iterable[Entry]]:
            return texts[which], [entry("n", FAST, args=[texts[which]])]

        return beats.beat(members)

    lagging, ahead = beat_that_reads("old"), beat_that_reads("new")
    run(lagging, ahead, until=beats.ids)
    texts["new"] = "2"
    look_again(ahead)
    current = beats.tick("n")["hash"]
    seen = len(beats.ids())
    restarted = beat_that_reads("old")
    run(lagging, ahead, restarted, until=lambda: len(beats.ids()) >= seen + 6)
    assert beats.tick("n")["hash"] == current
    late = [beats.coordinator.job(job_id).args for job_id in beats.ids()[seen:]]
    assert set(late) == {("2",)}
    texts["old"] = "2"
    look_again(lagging)
    texts["old"] = "1"  # it confirmed the current version, so this is a change
    look_again(lagging)
    assert beats.tick("n")["hash"] != current


def test_a_version_that_no_beat_stands_for_gives_way(beats: Beats) -> None:
    gone, started = (beats.beat(source(entry(name, 3600))) for name in "ab")
    gone.tick()
    look_again(started)
    assert beats.tick("b") == {}
    key = beats.store.key("schedule", started._readings[1].name)
    seen = int(beats.client.hget(key, "seen") or 0)
    beats.client.hset(key, "seen", seen - milliseconds(LAPSE))
    look_again(started)
    assert beats.tick("a") == {}
    assert beats.tick("b") != {}


def lapse(beats: Beats, beat: Scheduler) -> None:
    """As if no beat had confirmed the current version of this beat's source for so long."""
    key = beats.store.key("schedule", beat._readings[1].name)
    beats.client.hset(key, "seen", int(beats.client.hget(key, "seen")) - milliseconds(LAPSE))


@pytest.mark.parametrize("misfire", ["once", "all", "skip"])
def test_the_instants_while_a_changed_version_waits_are_sent_once_it_counts(
    beats: Beats, misfire: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is where each beat has a version of its own, and lives for little longer than it waits."""
    run(beats.beat(source(entry("n", 0.5, misfire=misfire))), until=beats.ids)
    for version in "23":
        beat = beats.beat(source(entry("n", 0.5, args=[version], misfire=misfire), version=version))
        look_again(beat)
        assert "this beat sends none of its entries until they read this version" in caplog.text
        before, began = beats.ids(), beats.now()
        pass_time(beats, 1.2, beat)
        assert beats.ids() == before
        lapse(beats, beat)
        run(beat, until=lambda: instant_of(beats.ids()[-1]) > began + timedelta(seconds=2))  # noqa: B023
        assert caplog.records[-1].message.endswith("this beat's version is current now, and its entries are sent")
        assert {tuple(beats.coordinator.job(job_id).args) for job_id in beats.ids() if job_id not in before} == {
            (version,)
        }
        caplog.clear()
    assert without_gap(beats.ids(), 0.5)


def test_a_version_that_waited_behind_another_sends_nothing_that_the_other_had_sent(beats: Beats) -> None:
    standing, waiting = (beats.beat(source(entry("n", 0.5, args=[text]), version=text)) for text in "12")
    run(standing, until=beats.ids)
    look_again(waiting)
    run(standing, waiting, until=lambda: len(beats.ids()) >= 4)
    sent = beats.ids()
    lapse(beats, waiting)
    run(waiting, until=lambda: len(beats.ids()) >= len(sent) + 2)
    assert without_gap(beats.ids(), 0.5)
    assert [beats.coordinator.job(job_id).args for job_id in beats.ids()[: len(sent) + 1]] == [("1",)] * len(sent) + [
        ("2",)
    ]


def test_what_redis_forgot_is_written_anew(beats: Beats) -> None:
    beat = beats.beat(source(entry()))
    run(beat, until=beats.ids)
    for key in beats.client.scan_iter(beats.store.prefix.replace("{", "\\{") + "*"):
        beats.client.delete(key)
    run(beat, until=beats.ids)


def test_sources_of_one_name_are_told_apart(beats: Beats) -> None:
    beat = beats.beat(source(entry("a")), source(entry("b")), partial(lambda: ("1", [entry("c")])))
    run(beat, until=lambda: {tick.partition("@")[0] for tick in beats.ids()} == {"a", "b", "c"})


def test_results_that_do_not_expire_by_themselves_are_cleaned_up_as_celery_does(beats: Beats, tmp_path: Path) -> None:
    cleanup = "celery.backend_cleanup"
    beats.beat().tick()
    assert beats.tick(cleanup) == {}
    beats.client.hset(beats.store.key("schedule", "beat_schedule"), "seen", 0)
    beats.beat(result_backend=f"file://{tmp_path}").tick()
    found = next_tick(beats.store, cleanup)
    assert found is not None
    assert (found.hour, found.minute) == (4, 0)


def test_a_source_that_a_beat_could_not_read_yet_keeps_what_beats_know_of_it(beats: Beats) -> None:
    """However long no beat has read it: nobody says that it has no entries."""
    answers = [entry("a", 3600)]

    def members() -> tuple[str, Iterable[Entry]]:
        return "1", iter([answers[0]])

    first = beats.beat(members)
    first.tick()
    beats.absent("a", since := beats.now() - timedelta(hours=1))
    taken = answers.pop()
    beats.client.hset(beats.store.key("schedule", first._readings[1].name), "seen", 0)
    heir = beats.beat(members)
    heir.tick()
    look_again(heir)
    assert beats.tick("a")["last"] == str(to_ms(since))
    beats.coordinator.entries.put(entry("stored", FAST))
    run(heir, until=lambda: [tick for tick in beats.ids() if tick.startswith("stored@")])
    heir = beats.beat(members, beat_schedule=5)  # no source at all can be read
    heir.tick()
    assert beats.tick("a")["last"] == str(to_ms(since))
    answers.append(taken)
    run(heir, until=lambda: [tick for tick in beats.ids() if tick.startswith("a@")])
