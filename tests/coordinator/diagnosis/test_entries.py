"""Why an entry of the schedule does not run."""

from datetime import timedelta

import pytest

from coordinator import UnknownEntry
from coordinator.store.times import instant, to_ms
from tests.coordinator.scheduler.beats import Beats, entry, run, source


def test_an_entry_says_when_it_is_due_and_who_paused_it_or_left_out_its_next_instant(beats: Beats) -> None:
    beats.beat(source(entry(schedule=3600))).tick()
    coordinator = beats.coordinator
    why = coordinator.why(entry="n")
    assert why.codes == ["entry.due"]
    assert why.causes[0].frees == "coordinator schedule run n --why …"
    coordinator.entries.skip_next("n", why="holiday", by="ann")
    why = coordinator.why(entry="n")
    assert why.codes == ["entry.omitted", "entry.due"]
    coordinator.entries.pause("n", why="repairs", by="ann")
    why = coordinator.why(entry="n")
    assert why.codes[0] == "entry.paused"
    assert why.causes[0].text.endswith(": repairs")
    with pytest.raises(UnknownEntry):
        coordinator.why(entry="nobody")


def test_an_entry_for_which_no_beat_stands_says_so_and_one_that_is_late_or_over(beats: Beats) -> None:
    first = beats.now() + timedelta(days=1)
    beats.beat(source(entry(schedule=3600), entry("once", 3600, last=first - timedelta(days=2)))).tick()
    coordinator, store = beats.coordinator, beats.store
    assert coordinator.why(entry="once").codes == ["entry.over"]
    beats.client.hset(store.key("tick", "n"), "next", to_ms(beats.now()) - 60_000)
    assert coordinator.why(entry="n").codes == ["entry.late", "entry.due"]
    for name in beats.client.smembers(store.key("schedule-sources")):
        beats.client.hset(store.key("schedule", name.decode()), "seen", store.now() - 60_000)
    why = coordinator.why(entry="n")
    assert why.codes == ["entry.beat", "entry.late", "entry.due"]
    assert why.causes[0].text.endswith(" for 60 s")


def test_an_instant_that_a_beat_took_and_has_not_sent_is_named_and_one_that_could_not_be(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=3600, key=None)))
    beat.tick()
    hour = instant(to_ms(beats.now()) // 3_600_000 * 3_600_000)
    beats.absent("n", hour - timedelta(seconds=1))
    assert beats.take("n", hour, claim=60_000)[0] == b"taken"
    assert beats.coordinator.why(entry="n").codes == ["entry.unsent", "entry.due"]
    for word, code in (("failed", "entry.failed"), ("missed", "entry.missed")):
        at = to_ms(hour)
        beats.store.step("tick_done", "n", at, "dead", word, 0, at, "dead beat", 100)
        assert beats.coordinator.why(entry="n").codes == [code, "entry.due"]
        hour += timedelta(seconds=1)
        beats.take("n", hour, claim=60_000)


def test_a_tick_whose_lane_was_busy_leads_to_the_lane_and_one_whose_job_waits_to_the_job(beats: Beats) -> None:
    beat = beats.beat(source(entry(schedule=1, when_busy="skip")))
    run(beat, until=beats.ids)
    [job_id] = beats.ids()
    why = beats.coordinator.why(entry="n")
    assert why.codes == ["entry.job", "entry.due", "waiting.fleet"]
    assert why.causes[0].of == (f"job {job_id}",)
    run(beat, until=lambda: beats.coordinator.entries.history("n")[-1].word == "skipped")
    why = beats.coordinator.why(entry="n")
    assert why.codes == ["entry.skipped", "entry.due", "lane.line", "waiting.fleet"]
    beats.coordinator.cancel(job_id)
