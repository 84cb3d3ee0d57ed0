"""Schedules as authors give them, and the texts by which Redis keeps them."""

import time
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
import pytz
from celery import Celery
from celery.schedules import crontab, schedule, solar
from celery.utils.time import LocalTimezone

from coordinator.scheduler.quartz import Quartz, QuartzError
from coordinator.scheduler.schedules import Crontab, Every, parse, schedule_of, text_of
from coordinator.scheduler.zones import plain


def test_schedules_of_celery_are_understood_where_they_name_instants() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert schedule_of(schedule(timedelta(minutes=1))) == schedule_of(60) == Every(60.0)
    tuesday = schedule_of(crontab(minute="30", hour="7", day_of_week="tue", app=Celery(set_as_current=False)))
    assert isinstance(tuesday, Crontab)
    assert tuesday.next(noon) == datetime(2026, 11, 24, 7, 30, tzinfo=UTC)
    berlin = Celery(set_as_current=False, timezone="Europe/Berlin")
    assert schedule_of(crontab("30", "7", app=berlin)).next(noon) == datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
    for refused in (True, object()):
        with pytest.raises(TypeError, match="is no schedule"):
            schedule_of(refused)
    for ignored, message in (
        (schedule(60, relative=True), "relative of <freq: 1.00 minute> has no effect: intervals count"),
        (schedule(60, nowfun=datetime.now), "nowfun of <freq: 1.00 minute> has no effect: beats use"),
        (crontab(nowfun=datetime.now), "nowfun of <crontab"),
        (solar("sunrise", 52.5, 13.4, nowfun=datetime.now), "nowfun of <solar"),
    ):
        with pytest.raises(TypeError, match=message):
            schedule_of(ignored)
    for wrong in (0.05, schedule(0.05), 0.1234567, schedule(timedelta(days=400))):
        with pytest.raises(ValueError, match=r"give 0\.1 s to 366 days, in whole milliseconds"):
            schedule_of(wrong)
    with pytest.raises(QuartzError):
        schedule_of("*/5 * * * *")


def test_an_interval_with_a_start_has_it_as_its_first_instant() -> None:
    start = datetime(2026, 11, 22, 7, 0, 0, 1000, tzinfo=UTC)
    every = parse("every 90 from 2026-11-22T08:00:00.001+01:00")
    assert every == Every(90.0, start)
    assert text_of(every) == "every 90 from 2026-11-22T07:00:00.001000+00:00"
    assert every.next(start - timedelta(days=1)) == start
    assert every.next(start) == start + timedelta(seconds=90)
    assert (str(every), str(Every(90.0))) == (f"Every(seconds=90.0) from {start}", "Every(seconds=90.0)")
    for wrong in ("every 90 from 2026-11-22T08:00:00", "every 90 from 2026-11-22T08:00:00.0001Z", "every 90 from noon"):
        with pytest.raises(ValueError):
            parse(wrong)


TABLE = [
    {"minute": "0"}, {"minute": "*/7", "hour": "9-17"}, {"minute": "30", "hour": "9"}, {"minute": "0", "hour": "0"},
    {"minute": "5", "hour": "4", "day_of_week": "sun"}, {"minute": "15", "hour": "*/6", "day_of_month": "1-7"},
    {"minute": "59", "hour": "23", "day_of_month": "31"}, {"minute": "0", "hour": "12", "month_of_year": "*/2"},
]  # fmt: skip

STARTS = [datetime(2026, *day, 22, 3, tzinfo=UTC) for day in ((3, 7), (3, 28), (10, 24), (11, 21))]
"""Three of them a few hours before clocks change."""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("kind", ["by name", "pytz", "of the machine"])
def test_a_crontab_comes_when_celery_says_so_whatever_kind_of_zone_the_app_has(
    zone: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        zones = {"by name": lambda: zone, "pytz": lambda: pytz.timezone(zone), "of the machine": LocalTimezone}
        ours, theirs = (Celery(set_as_current=False, enable_utc=False, timezone=one) for one in (zones[kind](), zone))
        for start, fields in product(STARTS, TABLE):
            own, at = schedule_of(crontab(app=ours, **fields)), start
            assert text_of(own)
            for _ in range(12):
                local = at.astimezone(ZoneInfo(zone))  # as a beat of Celery keeps the time of the last run
                celery = crontab(app=theirs, nowfun=lambda local=local: local, **fields)
                rest = celery.remaining_estimate(local)
                expected = at + rest, (local + rest).astimezone(UTC)  # by the clock on the wall in Celery 5.4
                assert own.next(at) in expected, (fields, at)
                at = own.next(at)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_zone_of_pytz_or_celery_is_taken_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Quartz("0 0 3 * * ? *", pytz.timezone("Europe/Berlin")) == Quartz("0 0 3 * * ? *", ZoneInfo("Europe/Berlin"))
    assert plain(pytz.utc) is UTC
    assert plain(pytz.FixedOffset(90)).utcoffset(None) == timedelta(minutes=90)
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0")
    with pytest.raises(ValueError, match=r"no time zone 'CET-1CEST,M3\.5\.0' is known"):
        plain(LocalTimezone())


@pytest.mark.parametrize(
    "given",
    [15, 0.5, "0 0 3 ? * SUN *", crontab("*/5", "7", app=Celery(set_as_current=False)), solar("sunrise", 52.5, 13.4)],
    ids=str,
)
def test_a_schedule_comes_back_from_its_text(given: object) -> None:
    one = schedule_of(given)  # type: ignore[arg-type]
    text = text_of(one)
    assert text
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert parse(text).next(now) == one.next(now)
    assert text_of(parse(text)) == text
