"""Entries that code stores in Redis while beats run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.schedules import crontab

from coordinator import Entry, InvalidJob, Use
from coordinator.scheduler.beat import Scheduler
from tests.coordinator.scheduler.beats import FAST, Beats, entry, look_again, pass_time, run, source


def names(beats: Beats) -> set[str]:
    return {job_id.partition("@")[0] for job_id in beats.ids()}


def test_a_stored_entry_is_sent_by_beats_that_run_and_by_those_that_start_later(beats: Beats) -> None:
    beat = beats.beat(source(entry("table", FAST)))
    run(beat, until=beats.ids)
    assert beats.coordinator.entries.put(entry("mine", FAST, args=[1]))
    assert not beats.coordinator.entries.put(entry("mine", FAST, args=[1]))
    run(beat, until=lambda: names(beats) == {"table", "mine"})
    later = beats.beat()
    count = len(beats.ids())
    run(later, until=lambda: len(beats.ids()) > count)
    assert beats.ids()[-1].startswith("mine@")


def test_once_an_entry_is_removed_no_beat_sends_it(beats: Beats) -> None:
    beats.coordinator.entries.put(entry("mine", FAST))
    several = [beats.beat() for _ in range(2)]
    run(*several, until=beats.ids)
    assert beats.coordinator.entries.remove("mine")
    assert not beats.coordinator.entries.remove("mine")
    before = beats.ids()
    pass_time(beats, 4 * FAST, *several)
    assert beats.ids() == before
    assert beats.coordinator.entries.all() == []


def test_a_changed_entry_counts_from_the_change_in_all_beats(beats: Beats) -> None:
    beats.coordinator.entries.put(entry("mine", 3600))
    several = [beats.beat() for _ in range(2)]
    for beat in several:
        beat.tick()
    beats.absent("mine", beats.now() - timedelta(hours=3))
    beats.coordinator.entries.put(entry("mine", 1800, args=[2]))
    for beat in several * 2:
        look_again(beat)
    assert beats.ids() == []
    beats.absent("mine", beats.now() - timedelta(minutes=40))
    several.append(beats.beat())
    for beat in several:
        look_again(beat)
    (only,) = beats.ids()
    assert beats.coordinator.job(only).args == (2,)


def test_a_name_of_another_source_is_refused_and_stays_with_it(beats: Beats) -> None:
    beat = beats.beat(source(entry("table", FAST)))
    run(beat, until=beats.ids)
    for act in (
        lambda: beats.coordinator.entries.put(entry("table", 60)),
        lambda: beats.coordinator.entries.remove("table"),
    ):
        with pytest.raises(InvalidJob, match="entry 'table' comes from the source"):
            act()
    assert beats.coordinator.entries.entry("table").when == f"every {FAST}"


ENTRIES: list[dict[str, Any]] = [
    {"schedule": "0 0 3 ? * 2-6 *", "zone": "Europe/Berlin"},
    {"schedule": crontab(minute="*/5", hour="7-9", day_of_week="mon")},
    {"schedule": timedelta(minutes=5), "jitter": 30.0, "misfire": "all", "catch_up": 3},
    {"schedule": 60, "first": datetime(2027, 1, 1, tzinfo=UTC), "last": datetime(2028, 1, 1, 12)},
    {"schedule": 60, "key": ["a", "b"], "when_busy": "replace", "submit": {"priority": 3}, "args": (1, "x")},
    {"schedule": 60, "submit": {"uses": {"licence": 2, "items": Use("all", until="end")}}},
    {"schedule": 60, "key": None, "options": {"queue": "q"}, "kwargs": {"deep": [{"a": None}]}},
]


@pytest.mark.parametrize("given", ENTRIES, ids=str)
def test_an_entry_that_comes_back_from_redis_is_the_same(given: dict[str, Any]) -> None:
    one = Entry("n", task="t", **({"key": "n"} | given))
    back = Entry.from_json(one.to_json())
    assert back.to_json() == one.to_json()
    now = datetime(2026, 11, 22, tzinfo=UTC)
    schedules = [found.planned() for found in (one, back)]
    for _ in range(10):
        first, second = (schedule.next(now) for schedule in schedules)
        assert first == second
        assert first is not None
        now = first


BAD: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "never"}, "never"),
    ({"schedule": object()}, "no schedule"),
    ({"schedule": 60, "zone": "Europe/Berlin"}, "takes no zone"),
    ({"schedule": "0 0 3 * * ?", "zone": "Mars/Base"}, "no time zone 'Mars/Base'"),
    ({"misfire": "never"}, "misfire is one of"),
    ({"catch_up": -1}, "catch_up"),
    ({"jitter": -1}, "jitter"),
    ({"first": "tomorrow"}, "no instant"),
    ({"args": [object()]}, "^entry 'n': an argument or option has no JSON form"),
    ({"when_busy": "never"}, "when_busy"),
    ({"submit": {"prio": 1}}, "prio"),
    ({"name": "a\nb"}, "printable"),
    ({"key": ["a", "a"]}, "twice"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[message for _, message in BAD])
def test_an_entry_that_cannot_be_is_refused_by_name_and_nothing_is_stored(
    beats: Beats, bad: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidJob, match=message) as refused:
        beats.coordinator.entries.put(Entry(**({"name": "n", "schedule": 60, "task": "sync", "key": "n"} | bad)))
    assert str(refused.value).count("entry 'n'") <= 1
    assert beats.coordinator.entries.all() == []


def test_more_changes_than_redis_remembers_are_read_as_a_whole(beats: Beats) -> None:
    beats.coordinator.entries.put(entry("gone", FAST))
    beat = beats.beat()
    run(beat, until=beats.ids)
    beats.coordinator.entries.remove("gone")
    beats.coordinator.entries.put(entry("mine", FAST))
    beats.client.incrby(beats.store.key("entries-version"), 20_000)
    run(beat, until=lambda: "mine" in names(beats))
    assert set(beat._stored.current) == {"mine"}


def test_many_stored_entries_are_read_in_pages(beats: Beats) -> None:
    for number in range(1200):
        beats.coordinator.entries.put(entry(f"m{number}", 3600))
    beat: Scheduler = beats.beat()
    beat.tick()
    assert len(beat._stored.current) == 1200
    assert len(beats.coordinator.entries.all("m11", most=50)) == 50


def test_stored_entries_that_are_due_together_are_put_in_line_in_one_round_trip(beats: Beats) -> None:
    for number in range(30):
        beats.coordinator.entries.put(entry(f"m{number}", 3600))
    beat = beats.beat()
    beat.tick()
    for number in range(30):
        beats.missed_hour(f"m{number}")
    asked: list[int] = []
    again = beats.beat()
    plain = again._store.step_many
    again._store.step_many = lambda name, calls: (asked.append(len(calls)), plain(name, calls))[1]  # type: ignore[assignment, method-assign, func-returns-value, arg-type]
    again.tick()
    assert len(beats.ids()) == 30
    assert asked == [30]


def test_a_tick_with_an_instance_competes_with_whoever_grabs_its_instant(beats: Beats) -> None:
    given = entry("n", 3600, key="report", instance=True)
    beats.coordinator.entries.put(given)
    beat = beats.beat()
    beat.tick()
    hour = beats.now().replace(minute=0, second=0, microsecond=0)
    with beats.coordinator.grab("report", hour, "server 1") as grab:
        assert grab.won
        beats.absent("n", hour - timedelta(seconds=1))
        again = beats.beat()
        again.tick()
    assert [one.word for one in beats.coordinator.entries.history("n")] == ["lost"]
    assert beats.coordinator.entries.run_now("n", token="t")
    look_again(again)
    assert {one.instance for one in beats.coordinator.grabs("report")} == {grab.instance, "run:t"}


@pytest.mark.parametrize(
    ("schedule", "more"),
    [("0 0 0 30 2 ? *", {}), ("0 0 0 1 1 ? 2001", {}), (10, {"last": datetime(2009, 1, 1)})],
)
def test_an_entry_whose_instant_never_comes_is_refused(beats: Beats, schedule: Any, more: Any) -> None:
    with pytest.raises(InvalidJob, match=r"entry 'mine': no instant of .* is still to come"):
        beats.coordinator.entries.put(entry("mine", schedule, **more))
    beats.coordinator.entries.put(entry("mine", FAST))
    beats.coordinator.entries.put(entry("mine", schedule, **more))
    with pytest.raises(InvalidJob, match=r"entry 'mine': no instant of .* is still to come"):
        beats.coordinator.entries.change("mine", "0 0 0 30 2 ? *")


@pytest.mark.parametrize("key", [None, "k"])
def test_an_entry_that_is_nested_too_deep_or_mistyped_is_refused(beats: Beats, key: str | None) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidJob, match=r"entry 'mine': .*recursion"):
        beats.coordinator.entries.put(Entry("mine", 60, "shop.work", args=(deep,), key=key))
    with pytest.raises(InvalidJob, match=r"entry 'mine': there is no option 'qeue'; did you mean 'queue'\?"):
        beats.coordinator.entries.put(Entry("mine", 60, "shop.work", options={"qeue": "q"}, key=key))
    assert beats.coordinator.entries.all() == []


def test_what_is_no_entry_is_refused(beats: Beats) -> None:
    with pytest.raises(InvalidJob, match=r"put takes an Entry\(name, schedule, task, …\), not {"):
        beats.coordinator.entries.put({"name": "mine"})  # type: ignore[arg-type]
