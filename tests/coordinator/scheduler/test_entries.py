"""Periodic entries: their hashes, and the instants at which they are due."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.store.times import EPOCH, instant, to_ms
from coordinator.scheduler.entry import Entry, tick_id
from coordinator.scheduler.entry_plan import LAG, Due, EntryPlan
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Crontab, Every, Schedule
from coordinator.scheduler.sources import SourceState

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALL = range(7)


def due(schedule: Schedule, last: datetime, now: datetime, grace: timedelta) -> Due | None:
    plan = EntryPlan(Entry("n", schedule, "t"))
    plan.count_from(last)
    return plan.due(now, grace)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@given(st.integers(1, 10**7), st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))
def test_an_interval_is_anchored_at_the_epoch(hundreds: int, naive: datetime) -> None:
    after, step = naive.replace(tzinfo=UTC), seconds(hundreds / 10)
    found = Every(hundreds / 10).next(after)
    assert found is not None
    assert (found - EPOCH) % step == timedelta(0)
    assert after < found <= after + step


@pytest.mark.parametrize("length", [0, -1, 0.05, 0.1234567, 1e9, float("nan")])
def test_an_interval_that_cannot_be_kept_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="an interval of"):
        Every(length)


def test_a_crontab_needs_its_day_of_month_and_its_day_of_week() -> None:
    friday_13th = Crontab([0, 30], [9], [13], range(1, 13), [5])
    assert friday_13th.next(NOON) == datetime(2027, 8, 13, 9, tzinfo=UTC)
    assert friday_13th.next(datetime(2027, 8, 13, 9, 30, tzinfo=UTC)) == datetime(2028, 10, 13, 9, tzinfo=UTC)


def test_a_crontab_counts_weekdays_from_sunday_0_in_its_own_zone() -> None:
    sunday = Crontab([0], [0], range(1, 32), range(1, 13), [0], ZoneInfo("Pacific/Auckland"))
    found = sunday.next(NOON)
    assert found == datetime(2026, 11, 28, 11, tzinfo=UTC)  # Sunday there, Saturday in UTC


def test_nothing_is_due_before_the_first_instant_after_the_last() -> None:
    assert due(Every(60), NOON, NOON + seconds(59), HOUR) is None
    assert due(Every(60), NOON, NOON + seconds(60), HOUR) == Due(NOON + seconds(60))
    assert due(Quartz("0 0 0 1 1 ? 2020"), NOON, NOON + HOUR, HOUR) is None


def test_a_beat_that_lags_takes_one_instant_after_the_other() -> None:
    assert due(Every(2), NOON, NOON + LAG + seconds(1), HOUR) == Due(NOON + seconds(2))


def test_of_all_that_was_missed_only_the_latest_is_sent() -> None:
    assert due(Every(2), NOON, NOON + seconds(61), HOUR) == Due(NOON + seconds(60), missed=29)
    assert due(Every(1800), NOON, NOON + seconds(1900), HOUR) == Due(NOON + seconds(1800))


def test_what_was_missed_longer_ago_than_the_grace_is_passed_over() -> None:
    daily = Quartz("0 0 13 * * ?")
    assert due(daily, NOON, NOON + 2 * HOUR, HOUR) == Due(NOON + HOUR)
    passed = due(daily, NOON, NOON + 2 * HOUR + seconds(0.001), HOUR)
    assert passed == Due(NOON + HOUR, sent=False, missed=1)
    assert due(daily, passed.instant, NOON + 3 * HOUR, HOUR) is None


CHANGES: dict[str, Any] = {
    "name": "other", "schedule": "0 0 13 * * ?", "task": "other", "args": [2], "kwargs": {"a": 2},
    "options": {"queue": "b"}, "key": "k2", "when_busy": "skip", "submit": {"priority": 3}, "instance": True,
    "misfire": "all", "catch_up": 5, "jitter": 2.0, "zone": "Europe/Berlin", "first": NOON, "last": NOON,
}  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in fields(Entry)])
def test_the_hash_changes_with_each_field(field: str) -> None:
    given: dict[str, Any] = {"name": "n", "schedule": "0 0 12 * * ?", "task": "t", "args": [1], "kwargs": {"a": NOON}}
    given |= {"key": "k"}
    one, other = Entry(**given), Entry(**{**given, field: CHANGES[field]})
    assert one.hash(one.planned()) == Entry(**given).hash(Entry(**given).planned())
    assert one.hash(one.planned()) != other.hash(other.planned())


def test_the_hash_of_a_schedule_tells_zones_and_weekdays_apart() -> None:
    days = range(1, 32), range(1, 13)
    schedules: list[Schedule] = [
        Quartz("0 0 12 * * ?"),
        Quartz("0 0 12 * * ?", ZoneInfo("Europe/Berlin")),
        Crontab([0], [12], *days, [1]),
        Crontab([0], [12], *days, [2]),
        Crontab([0], [12], *days, [1], ZoneInfo("Europe/Berlin")),
        Every(60),
    ]
    assert len({Entry("n", None, "t").hash(schedule) for schedule in schedules}) == len(schedules)


def test_the_id_of_a_tick_is_its_name_and_its_instant_in_utc() -> None:
    assert tick_id("sync/urn:node:A", NOON) == "sync/urn:node:A@2026-11-21T12:00:00Z"
    assert tick_id("n", NOON.astimezone(ZoneInfo("Asia/Tokyo"))) == "n@2026-11-21T12:00:00Z"
    assert tick_id("n", NOON + seconds(0.5)) == "n@2026-11-21T12:00:00.500Z"


def test_the_calls_of_a_tick_have_ids_in_their_order_and_one_that_raised_has_its_id_again() -> None:
    tick, made = tick_id("n", NOON), []
    for fails in (True, False, True, False):
        with suppress(ValueError), tick.of_call() as own:
            made.append(own)
            if fails:
                raise ValueError("no")
    assert made == [str(tick), str(tick), f"{tick}#2", f"{tick}#2"]


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_milliseconds_keep_an_instant(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC, microsecond=naive.microsecond // 1000 * 1000)
    assert instant(to_ms(at)) == at


def reading(*entries: Entry) -> SourceState:
    return SourceState("source", lambda: ("1", entries))


def test_the_order_of_its_entries_makes_no_other_version_of_a_source() -> None:
    one, two, less = Entry("one", Every(2), "t"), Entry("two", Every(2), "t"), Entry("one", Every(3), "t")
    digests = []
    for entries in ((one, two), (two, one), (one,), (less, two)):
        source = reading(*entries)
        source.again()
        source.settle(set())
        digests.append(source.digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "bad",
    [
        Entry("", Every(2), "t"),
        Entry("a\nb", Every(2), "t"),
        Entry("n" * 256, Every(2), "t"),
        Entry("bad", Every(2), "t" * 256),
        Entry("bad", Every(2), "t", options={"queue": "a\u202eb"}),
        Entry("bad", "never", "t"),
        Entry("bad", Every(2), "t", args=[object()]),
        Entry("bad", Every(2), "t", kwargs={"loop": object()}),
        Entry(None, Every(2), "t"),  # type: ignore[arg-type]
        "no entry",
    ],
)
def test_an_entry_that_is_no_good_is_named_and_left_out(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = reading(Entry("one", Every(2), "t"), bad, Entry("two", Every(2), "t"))
    assert source.again()
    assert list(source.all) == ["one", "two"]
    assert [next(iter(record.args or ())) for record in caplog.records] == [getattr(bad, "name", bad)]


def test_the_entries_of_a_source_are_gone_through_when_its_version_is_new() -> None:
    versions, gone_through = ["1", "1", "2"], []

    def read() -> tuple[str, Iterable[Entry]]:
        version = versions.pop(0)
        return version, (gone_through.append(version) or entry for entry in [Entry("n", Every(2), "t")])  # type: ignore[func-returns-value]

    source = SourceState("source", read)
    assert [source.again() for _ in range(3)] == [True, False, True]
    assert gone_through == ["1", "2"]


def test_a_source_that_fails_keeps_its_entries_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [("1", [Entry("n", Every(2), "t")]), None, None]
    source = SourceState("source", lambda: answers.pop(0))
    assert source.again()
    assert [source.again(), source.again()] == [False, False]
    assert list(source.all) == ["n"]
    assert len(caplog.records) == 1
    assert source.error


def test_a_name_belongs_to_the_first_source_that_has_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second = reading(Entry("n", Every(2), "a")), reading(Entry("n", Every(2), "b"), Entry("m", Every(2), "b"))
    names: set[str] = set()
    for source in (first, second):
        source.again()
        source.settle(names)
    assert (list(first.plans), list(second.plans)) == (["n"], ["m"])
    assert "another source has an entry of that name" in caplog.text
    alone = reading(Entry("m", Every(2), "b"))
    alone.again()
    alone.settle(set())
    assert second.digest == alone.digest != first.digest


def test_what_a_beat_sent_is_remembered_when_its_entry_changes() -> None:
    source = reading(Entry("n", Every(2), "t"))
    source.again()
    source.all["n"].sent = source.all["n"].unsent = NOON
    source.read = lambda: ("2", [Entry("n", Every(3), "t")])
    assert source.again()
    assert (source.all["n"].sent, source.all["n"].unsent) == (NOON, NOON)
    assert source.all["n"].due(NOON, HOUR) == Due(EPOCH)
