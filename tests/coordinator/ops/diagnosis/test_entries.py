"""Why an entry of the schedule does not run."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product

import pytest

from coordinator import UnknownEntry
from coordinator.core.author import act_of
from coordinator.core.store.times import instant, moment, to_ms
from coordinator.ops.diagnosis.entries import broken
from coordinator.scheduler.entry import Entry, tick_id
from tests.coordinator.scheduler.beats import Beats, entry, run, source
from tests.harness.hand_node import Puppet


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


@pytest.mark.parametrize(
    ("key", "options", "error"),
    [("k", {"countdown": "soon"}, "countdown"), (None, {"serializer": "odd"}, "SerializerNotInstalled")],
)
def test_an_entry_that_cannot_be_made_says_why_and_nobody_is_told_to_run_it(
    beats: Beats, key: str | None, options: dict[str, object], error: str
) -> None:
    entries, beat = beats.coordinator.entries, beats.beat(source(entry(schedule=1, key=key, options=options)))
    beat.tick()
    assert entries.entry("n").last is None, "it never ran, though it counts from some time on"
    run(beat, until=lambda: entries.history("n"))
    event = entries.history("n")[-1]
    assert (event.word, error in event.error, "\x1f" in event.beat) == ("failed", True, False)
    why = beats.coordinator.why(entry="n")
    assert why.codes == ["entry.failed", "entry.due"]
    assert why.causes[0].text.endswith(f": {event.error}. Mend that; running it by hand fails, too")
    assert [one.frees for one in why.causes] == [None, None]
    assert entries.entry("n").last == entries.history("n")[-1]
    entries.run_now("n", token="now")
    run(beat, until=lambda: [one for one in entries.history("n") if one.kind == "run"])
    assert all(error in one.error for one in entries.history("n"))


def test_an_entry_is_broken_while_its_ticks_fail_and_where_no_node_has_its_task(beats: Beats) -> None:
    entries, beat = beats.coordinator.entries, beats.beat(source(entry(schedule=1, options={"countdown": "soon"})))
    node = Puppet(beats.coordinator.store)
    node.up()
    living = beats.coordinator.nodes()
    beat.tick()
    run(beat, until=lambda: len(entries.history("n")) >= 2)
    first, *_, last = entries.history("n")
    told = entries.entry("n")
    assert (told.failing, told.ran, told.state) == (first.at, None, "")
    assert broken(told, living).startswith(f"each tick since {moment(first.at)} failed: ")
    assert broken(told, living).endswith(last.error)
    beats.coordinator.entries.put(Entry("known", 3600, "shop.work", key="k"))
    beats.coordinator.entries.put(Entry("unknown", 3600, "shop.gone", key="k", submit={"if_unknown": "wait"}))
    beats.coordinator.entries.put(Entry("plain", 3600, "shop.gone"))
    found = [broken(entries.entry(name), living) for name in ("known", "unknown", "plain")]
    assert found == ["", "no node has the task shop.gone", ""]
    assert broken(entries.entry("unknown"), []) == "", "without a node, nobody can tell"


def test_the_last_run_of_an_entry_has_the_state_of_its_job_and_a_skipped_tick_is_none(beats: Beats) -> None:
    beat, entries = beats.beat(source(entry(schedule=1, when_busy="skip"))), beats.coordinator.entries
    beat.tick()
    run(beat, until=lambda: [one.word for one in entries.history("n")][-1:] == ["skipped"])
    told, [job_id] = entries.entry("n"), beats.ids()
    assert told.last
    assert told.ran
    assert (told.last.word, told.ran.job_id, told.state, told.failing) == ("skipped", job_id, "ready", None)
    beats.coordinator.cancel(job_id)
    assert [one.state for one in entries.all()] == ["cancelled"]


BEATS = {"fresh": 0, "silent": 60_000, "none": None}  # ms since a beat confirmed the source
ENDS = ("", "skipped", "failed", "missed", "open", "ended")  # what became of the last tick
WAYS = [
    way
    for way in product((False, True), (False, True), (False, True), ("", "unsent", "late"), ENDS)
    if not (way[0] and way[2])  # what is over has no instant to leave out
]


def test_whatever_befalls_an_entry_its_causes_are_those_of_what_was_done_to_it(beats: Beats) -> None:
    past = beats.now() - timedelta(days=1)
    names = {f"e{number}": way for number, way in enumerate(WAYS)}
    beats.beat(source(*(entry(name, 3600, last=past if way[0] else None) for name, way in names.items()))).tick()
    expected = {name: set(done(beats, name, *way)) for name, way in names.items()}
    schedule = beats.store.key("schedule", beats.coordinator.entries.entry("e0").source)
    for state, silent in BEATS.items():
        if silent is None:
            beats.client.hdel(schedule, "seen")
        else:
            beats.client.hset(schedule, "seen", beats.store.now() - silent)
        beside = {("entry.beat", "")} if state != "fresh" else set[tuple[str, str]]()
        for name in names:
            own = [one for one in beats.coordinator.why(entry=name).causes if one.thing == f"entry {name}"]
            named = [(one.code, str(one.facts.get("instant", one.facts.get("omitted", "")))) for one in own]
            found = {(code, at and str(datetime.fromisoformat(at))) for code, at in named}
            assert found == expected[name] | beside, (names[name], state)
    for job_id in beats.ids_in_any_order():
        beats.coordinator.cancel(job_id)


def done(
    beats: Beats, name: str, over: bool, paused: bool, omitted: bool, unsent: str, end: str
) -> Iterator[tuple[str, str]]:
    """Do all this to an entry; yield each cause, and the instant that it names."""
    store, hour = beats.store, instant(to_ms(beats.now()) // 3_600_000 * 3_600_000)
    ticked, taken, act = hour - timedelta(seconds=9), hour - timedelta(seconds=8), act_of(why="a test")
    beats.absent(name, hour - timedelta(seconds=10))
    if end:
        beats.take(name, ticked, claim=60_000)
        word = {"open": "queued", "ended": "queued"}.get(end, end)
        store.step("tick_done", name, to_ms(ticked), "dead", word, 0, to_ms(ticked), "dead beat", 100)
    if end in ("open", "ended"):
        job = beats.coordinator.submit(name, {"task": "sync"}, job_id=tick_id(name, ticked))
        if end == "ended":
            beats.coordinator.cancel(job)
    if end and end != "ended":
        yield "entry.job" if end == "open" else f"entry.{end}", str(ticked)
    if unsent == "unsent":
        beats.take(name, taken, claim=60_000)
        yield "entry.unsent", str(taken)
    overdue = hour - timedelta(seconds=7)
    beats.client.hset(store.key("tick", name), "next", to_ms(overdue) if unsent == "late" else 0)
    if unsent == "late" and not paused:
        yield "entry.late", str(overdue)
    if omitted:
        yield "entry.omitted", str(beats.coordinator.entries.skip_next(name, why="a test"))
    if paused:
        store.step("entry_pause", name, act)
        yield "entry.paused", ""
    else:
        yield "entry.over" if over else "entry.due", ""
