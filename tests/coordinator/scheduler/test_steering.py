"""What operators do to entries while beats run: pause, resume, skip, run now, another schedule."""

from datetime import timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab

from coordinator import Coordinator, InvalidJob, UnknownEntry
from coordinator.core.author import act_of
from coordinator.core.store.times import to_ms
from coordinator.ops.verbs.declared import verbs
from coordinator.scheduler.entry import Entry, tick_id
from coordinator.scheduler.quartz import Quartz
from tests.coordinator.scheduler.beats import FAST, Beats, entry, instant_of, look_again, pass_time, run, source


def test_once_a_pause_has_returned_no_beat_fires_and_a_restarted_one_does_not_either(beats: Beats) -> None:
    several = [beats.beat(source(entry())) for _ in range(2)]
    run(*several, until=lambda: len(beats.ids()) >= 2)
    assert beats.coordinator.entries.pause("n", why="holiday", by="ann")
    before = beats.ids()
    pass_time(beats, 4 * FAST, *several)
    again = beats.beat(source(entry()))
    pass_time(beats, 3 * FAST, again)
    assert beats.ids() == before
    told = beats.coordinator.entries.entry("n")
    assert told.paused is not None
    assert (told.paused["by"], told.paused["why"], told.next) == ("ann", "holiday", None)
    assert not beats.coordinator.entries.pause("n")


def test_a_tick_that_is_taken_by_a_beat_that_did_not_hear_of_the_pause_is_passed_over(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    beats.coordinator.entries.pause("n")
    assert beats.take("n", beats.missed_hour(), claim=5000)[0] == b"passed"
    assert beats.ids() == []


def test_the_instants_of_a_pause_are_not_missed_ones(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600, misfire="all")))
    beat.tick()
    beats.coordinator.entries.pause("n")
    beats.absent("n", beats.now() - timedelta(hours=5))
    assert beats.coordinator.entries.resume("n")
    assert not beats.coordinator.entries.resume("n")
    again = beats.beat(source(entry(schedule=3600, misfire="all")))
    for _ in range(3):
        look_again(again)
    assert beats.ids() == []


def test_a_pause_waits_for_a_beat_that_publishes_an_ordinary_task(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600, key=None)))
    beat.tick()
    hour = beats.missed_hour()
    assert beats.take("n", hour, claim=700)[0] == b"taken"
    began = beats.now()
    beats.coordinator.entries.pause("n")
    assert beats.now() - began >= timedelta(seconds=0.6)
    assert "unsent" not in beats.tick("n")
    look_again(beat)
    assert beats.messages() == []


def test_the_next_instant_is_left_out_once_and_who_did_it_stands_in_the_history(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=1)))
    run(beat, until=beats.ids)
    left_out = beats.coordinator.entries.skip_next("n", why="holiday", by="ann")
    assert beats.coordinator.entries.skip_next("n") == left_out
    run(beat, until=lambda: instant_of(beats.ids()[-1]) > left_out)
    assert tick_id("n", left_out) not in beats.ids()
    assert tick_id("n", left_out + timedelta(seconds=1)) in beats.ids()
    found = beats.coordinator.entries.history("n")
    assert [one.at for one in found if one.word == "omitted"] == [left_out]
    assert [(one.by, one.why) for one in found if one.kind == "act"] == [("ann", "holiday")]
    assert beats.coordinator.entries.entry("n").omitted is None


def test_a_list_of_entries_has_the_instant_behind_the_one_that_is_left_out(coordinator: Coordinator) -> None:
    coordinator.entries.put(Entry("n", "0 0 2 * * ?", "shop.work", key="night"))
    left_out = coordinator.entries.skip_next("n", why="holiday")
    [listed] = coordinator.entries.all()
    assert listed.next == coordinator.entries.entry("n").next == left_out + timedelta(days=1)


def test_no_instant_is_left_out_where_only_beats_know_the_next_one_and_none_runs(beats: Beats) -> None:
    nameless = timezone(timedelta(hours=1))
    beats.beat(source(entry(schedule=Quartz("0 0 * * * ?", nameless)))).tick()
    beats.coordinator.entries.pause("n")
    beats.client.hset(beats.store.key("tick", "n"), "next", to_ms(beats.now()) - 1000)
    beats.coordinator.entries.resume("n")
    with pytest.raises(InvalidJob, match="next instant"):
        beats.coordinator.entries.skip_next("n")


def test_a_run_now_has_an_id_of_its_own_and_happens_once_however_often_it_is_asked_for(beats: Beats) -> None:
    several = [beats.beat(source(entry(schedule=3600, args=[7]))) for _ in range(3)]
    for beat in several:
        beat.tick()
    beats.coordinator.entries.pause("n")
    ids = {beats.coordinator.entries.run_now("n", token="t1", by="ann", why="test") for _ in range(3)}
    for beat in several * 2:
        look_again(beat)
    beats.coordinator.entries.run_now("n", token="t1")
    for beat in several:
        look_again(beat)
    (job_id,) = ids
    assert job_id == "n@run:t1"
    assert beats.coordinator.job(job_id).args == (7,)
    assert beats.coordinator.counts()["created"] == 1
    (run_,) = [one for one in beats.coordinator.entries.history("n") if one.kind == "run"]
    assert (run_.by, run_.why, run_.word, run_.job_id) == ("ann", "test", "queued", job_id)
    with pytest.raises(InvalidJob, match="reserved"):
        beats.coordinator.submit("n", beats.app().signature("sync"), job_id=job_id)


@pytest.mark.parametrize("by", ["Jane Doe", "ops: night"])
def test_who_did_what_and_why_reads_back_as_it_was_said(beats: Beats, by: str) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    entries, why = beats.coordinator.entries, "nobody: is\nthere " * 20
    entries.pause("n", why=why, by=by)
    entries.change("n", "0 0 1 * * ? *", why="", by=by)
    entries.run_now("n", why=why, by=by)
    look_again(beat)
    found = [(one.kind, one.word, one.by, one.why) for one in entries.history("n")]
    assert found == [
        ("act", "paused", by, why),
        ("act", "changed to 0 0 1 * * ? *", by, ""),
        ("run", "queued", by, why),
    ]


def test_a_schedule_of_another_zone_than_the_entrys_is_refused(beats: Beats) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    beats.beat(source(entry("utc", 3600), entry("berlin", "0 0 3 * * ?", zone="Europe/Berlin"))).tick()
    change, seven = beats.coordinator.entries.change, "0 0 7 * * ? *"
    for name, given in (("utc", Quartz(seven, berlin)), ("berlin", Quartz(seven)), ("berlin", crontab(hour=7))):
        with pytest.raises(InvalidJob, match=r"its zone is (UTC|Europe/Berlin), not .*; give an expression as text"):
            change(name, given)
    assert change("berlin", Quartz(seven, berlin))
    assert not change("berlin", seven)
    assert change("berlin", 3600)


def test_an_ordinary_task_is_run_now_under_an_id_of_its_own(beats: Beats) -> None:
    several = [beats.beat(source(entry(schedule=3600, key=None))) for _ in range(2)]
    for beat in several:
        beat.tick()
    task_id = beats.coordinator.entries.run_now("n")
    for beat in several * 2:
        look_again(beat)
    assert [message["headers"]["id"] for message in beats.messages()] == [task_id]


def test_a_run_that_a_dead_beat_took_is_sent_by_another(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600, key=None)))
    beat.tick()
    task_id = beats.coordinator.entries.run_now("n", token="t1")
    assert beats.store.step("run_take", "n", "t1", "dead", 300, "", "b", 100)[0] == b"taken"
    look_again(beat)
    assert beats.messages() == []
    pass_time(beats, 0.4)
    look_again(beat)
    assert [message["headers"]["id"] for message in beats.messages()] == [task_id]


def test_another_schedule_counts_until_it_is_taken_back_for_all_beats_and_after_a_restart(beats: Beats) -> None:
    several = [beats.beat(source(entry(schedule=3600))) for _ in range(2)]
    for beat in several:
        beat.tick()
    assert beats.coordinator.entries.change("n", FAST, why="more often", by="ann")
    assert not beats.coordinator.entries.change("n", FAST)
    run(*several, until=lambda: len(beats.ids()) >= 3)
    again = beats.beat(source(entry(schedule=3600)))
    count = len(beats.ids())
    run(again, until=lambda: len(beats.ids()) >= count + 3)
    told = beats.coordinator.entries.entry("n")
    assert told.when == f"every {FAST}"
    assert told.changed is not None
    assert told.changed["by"] == "ann"
    assert beats.coordinator.entries.restore("n")
    assert not beats.coordinator.entries.restore("n")
    before = beats.ids()
    for beat in (*several, again) * 2:
        look_again(beat)
    pass_time(beats, 2 * FAST)
    for beat in (*several, again):
        look_again(beat)
    assert beats.ids() == before
    assert beats.coordinator.entries.entry("n").when == "every 3600"


def test_a_beat_that_has_not_heard_of_another_schedule_fires_nothing(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=FAST)))
    run(beat, until=beats.ids)
    beats.coordinator.entries.change("n", 3600)
    before = beats.ids()
    beat._round_at += 60  # it does not look
    pass_time(beats, 2 * FAST)
    beat.tick()
    assert beats.ids() == before


def test_a_schedule_that_is_moved_to_an_earlier_hour_that_is_over_fires_nothing_at_once(beats: Beats) -> None:
    now = beats.now()
    later, earlier = now + timedelta(minutes=30), now - timedelta(minutes=30)
    beat = beats.beat(source(entry(schedule=f"0 {later:%M %H} * * ?")))
    beat.tick()
    beats.coordinator.entries.change("n", f"0 {earlier:%M %H} * * ?")
    for _ in range(3):
        look_again(beat)
    assert beats.ids() == []
    upcoming = beats.coordinator.entries.entry("n").next
    assert upcoming is not None
    assert upcoming - now > timedelta(hours=20)


def test_what_operators_said_outlives_an_entry_that_comes_back(beats: Beats) -> None:
    given = [entry(schedule=3600), entry("other", 3600)]
    beat = beats.beat(lambda: (str(given), given))
    beat.tick()
    beats.coordinator.entries.pause("n", why="holiday")
    kept = given.pop(0)
    look_again(beat)
    with pytest.raises(UnknownEntry, match="'n'"):
        beats.coordinator.entries.entry("n")
    given.append(kept)
    look_again(beat)
    assert beats.coordinator.entries.entry("n").paused


@pytest.mark.parametrize("act", ["pause", "resume", "skip_next", "run_now", "restore", "entry", "history"])
def test_an_entry_that_nobody_knows_is_named(beats: Beats, act: str) -> None:
    with pytest.raises(UnknownEntry, match="no entry 'nobody'"):
        getattr(beats.coordinator.entries, act)("nobody")


def test_what_is_no_schedule_or_no_token_is_refused_and_nothing_changes(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    with pytest.raises(InvalidJob, match="weekly"):
        beats.coordinator.entries.change("n", "weekly")
    with pytest.raises(InvalidJob, match="day of the week"):
        beats.coordinator.entries.change("n", "crontab 0 0 1 1 7")
    with pytest.raises(InvalidJob, match="token"):
        beats.coordinator.entries.run_now("n", token="a b")
    assert not beats.coordinator.entries.entry("n").other


def test_how_a_ticks_job_ended_stands_in_the_history(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=1)))
    run(beat, until=beats.ids)
    (first, *_) = beats.ids()
    beats.coordinator.cancel(first)
    found = next(one for one in beats.coordinator.entries.history("n") if one.job_id == first)
    assert (found.word, found.state, found.beat != "") == ("queued", "cancelled", True)
    assert 0 <= found.late < 60


def test_the_history_keeps_so_many_ticks_of_at_most_200_bytes(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=0.1, when_busy="skip")))
    log = beats.store.key("ticks", "n")
    beat.tick()
    beat._ticks.most = 3
    run(beat, until=lambda: len(beats.coordinator.entries.history("n")) >= 6)
    pass_time(beats, 0.5)
    beat.tick()
    assert beats.client.llen(log) == 6
    assert max(map(len, beats.client.lrange(log, 0, -1))) <= 200


def test_a_hundred_ticks_of_an_entry_are_kept_and_ten_where_there_are_many_entries(beats: Beats) -> None:
    beat = beats.beat(source(*(entry(f"m{n}", 3600) for n in range(1001))))
    assert beat._ticks.most == 100
    beat.tick()
    assert beat._ticks.most == 10


def test_a_beat_names_the_schedule_of_operators_that_it_cannot_read(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    beat = beats.beat(source(entry(schedule=3600)))
    beat.tick()
    beats.store.step("entry_change", "n", "gibberish", 0, act_of("why", "by"))
    look_again(beat)
    assert "'gibberish'" in caplog.text


def test_the_next_five_instants_say_what_an_expression_means_and_nothing_changes(beats: Beats) -> None:
    beats.beat(source(entry(schedule=3600, zone=None))).tick()
    entries, before = beats.coordinator.entries, beats.coordinator.entries.entry("n", 5)
    planned = entries.plan_change("n", "0 30 6 ? * MON")
    assert [(at.weekday(), at.hour, at.minute) for at in planned] == [(0, 6, 30)] * 5
    assert [after - at for at, after in pairwise(planned)] == [timedelta(days=7)] * 4
    assert entries.plan_change("n", "0 0 5 1 1 ? 2099")[1:] == []
    verb = verbs()["entry-change"]
    assert verb.plan
    lines = verb.plan(beats.coordinator, {"name": "n", "schedule": "0 30 6 ? * MON"})
    assert lines[0] == f"now: {before.when}"
    assert [line.split()[0] for line in lines[6:]] == ["then:", *["Mon"] * 5]
    assert len(verb.plan(beats.coordinator, {"name": "n", "schedule": ""})) == 6
    assert entries.entry("n", 5).upcoming == before.upcoming
    with pytest.raises(InvalidJob, match="still to come"):
        entries.plan_change("n", "0 0 5 1 1 ? 2001")
    with pytest.raises(UnknownEntry):
        entries.plan_change("nobody", 60)
