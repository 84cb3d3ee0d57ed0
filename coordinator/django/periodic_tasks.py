"""Makes schedule entries of the rows of django-celery-beat's tables.

A row is read with the row of its schedule, as plain values and in one query: so a value that Django's model would
refuse, such as an unknown time zone, breaks that row alone.

A row that is to run once (`one_off`, or a clocked time) has one instant, which all beats compute from the row itself:
the first that its schedule has once the row has been saved for `SEEN` seconds, in which every beat reads it. So a
clocked time that has passed already is sent then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from difflib import get_close_matches
from typing import NamedTuple, TypeVar

from celery.schedules import crontab, solar
from django.db.models import CharField, QuerySet
from django.db.models.functions import Cast
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from kombu.utils.json import loads

from coordinator.core.keyed_task.message import PAST
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Crontab, Every, Schedule, schedule_of
from coordinator.scheduler.zones import zone_named

SEEN = timedelta(seconds=2)  # in which all beats have read a row that was saved
_MS, _SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
_PERIODS = ("days", "hours", "minutes", "seconds", "microseconds")
_OPTIONS = ("queue", "exchange", "routing_key", "priority")
_IN_HEADER = ("key", "when_busy", "submit", "instance", "misfire", "catch_up", "jitter")  # fields of an Entry
T = TypeVar("T")


class Row(NamedTuple):
    """An enabled row of PeriodicTask, with the values of its schedule's row, which are None where it has none."""

    pk: int
    name: str
    task: str
    args: str
    kwargs: str
    headers: str | None
    queue: str | None
    exchange: str | None
    routing_key: str | None
    priority: int | None
    expires: datetime | None
    expire_seconds: int | None
    one_off: bool
    start_time: datetime | None
    date_changed: datetime
    interval_id: int | None
    crontab_id: int | None
    solar_id: int | None
    clocked_id: int | None
    interval__every: int | None
    interval__period: str | None
    crontab__minute: str | None
    crontab__hour: str | None
    crontab__day_of_month: str | None
    crontab__month_of_year: str | None
    crontab__day_of_week: str | None
    crontab_zone: str | None
    solar__event: str | None
    solar__latitude: Decimal | None
    solar__longitude: Decimal | None
    clocked__clocked_time: datetime | None

    @property
    def once(self) -> bool:
        return self.one_off or self.clocked_id is not None

    def is_over(self, now: datetime) -> bool:
        return self.expires is not None and aware(self.expires) <= now


def read_rows(tasks: QuerySet[PeriodicTask]) -> list[Row]:
    """Read the enabled rows."""
    found = tasks.filter(enabled=True).order_by("pk")
    zone = Cast("crontab__timezone", CharField(max_length=63))  # as text: Django's field refuses an unknown zone
    return [Row(*values) for values in found.annotate(crontab_zone=zone).values_list(*Row._fields)]


def aware(at: datetime) -> datetime:
    """Return the instant of a value of the database, which has no zone where the project has `USE_TZ = False`."""
    return timezone.make_aware(at, timezone.get_default_timezone()) if timezone.is_naive(at) else at


@dataclass(frozen=True)
class BrokenRow(Entry):
    """A row of which no entry can be made; `reason` says why. A beat names it, and leaves it out."""

    reason: str = ""

    def planned(self, other: str = "") -> Schedule:
        raise ValueError(self.reason)


def entry_of(row: Row, zone: tzinfo | None, check: Callable[[Entry], None]) -> Entry:
    """Make the entry of a row. `zone`: of all crontabs, None: each has its own. `check` raises for an entry of which no
    job can be made.
    """
    try:
        entry = _entry(row, zone)
        entry.planned()
        check(entry)
    except Exception as error:  # of values that anybody may have written into the table
        return BrokenRow(row.name, "", row.task, reason=f"{error}")
    return entry


def _entry(row: Row, zone: tzinfo | None) -> Entry:
    headers = _json("headers", row.headers or "{}", dict)
    own = _coordinate(headers)
    options: dict[str, object] = {
        name: value for name in _OPTIONS if (value := getattr(row, name)) is not None and value != ""
    }
    if expires := row.expires or row.expire_seconds:
        options["expires"] = aware(expires) if isinstance(expires, datetime) else expires
    options["headers"] = {**headers, "periodic_task_name": row.name}
    first, schedule = _schedule(row, zone)
    args, kwargs = _json("args", row.args or "[]", list), _json("kwargs", row.kwargs or "{}", dict)
    return Entry.from_table(
        row.name,
        {
            "schedule": schedule, "task": row.task, "args": args, "kwargs": kwargs, "options": options,
            "first": first, "last": _last(row, first), **own,
        },
    )  # fmt: skip


def _json(name: str, text: str, kind: type[T]) -> T:
    try:
        value = loads(text)
    except Exception as error:
        raise ValueError(f"{name} {text!r:.80} is no JSON: {error}") from error
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {'a list' if kind is list else 'an object'} in JSON, not {text!r:.80}")
    return value


def _coordinate(headers: dict[str, object]) -> dict[str, object]:
    """Take the header `coordinate` out: an object with those fields of an entry that the table has no column for. Its
    value `false` stays, by which the call of a keyed task goes past its lane.
    """
    if headers.get(PAST) is False:
        return {}
    given = headers.pop(PAST, None) or {}
    if not isinstance(given, Mapping):
        raise ValueError(f'the header {PAST} is false, or an object such as {{"key": "report"}}, not {given!r:.80}')
    for wrong in given.keys() - set(_IN_HEADER):
        near = get_close_matches(str(wrong), _IN_HEADER, 1)
        raise ValueError(f"the header {PAST} has no field {wrong!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return dict(given)


def _schedule(row: Row, zone: tzinfo | None) -> tuple[datetime | None, Schedule]:
    """Return the schedule of a row, and its first instant, None: no bound."""
    start = None if row.start_time is None else _ceil(aware(row.start_time), _MS)
    kinds = [kind for kind in ("interval", "crontab", "solar", "clocked") if getattr(row, f"{kind}_id") is not None]
    if len(kinds) != 1:
        has = f"has the schedules {', '.join(kinds)}" if kinds else "has no schedule"
        raise ValueError(f"it {has}: give it one of interval, crontab, solar and clocked")
    since = max(filter(None, (start, _ceil(aware(row.date_changed) + SEEN, _MS))))
    if row.clocked_id is not None:
        at = _ceil(max(since, aware(_found("clocked", row.clocked__clocked_time))), _SECOND).astimezone(UTC)
        return at, Quartz(f"{at.second} {at.minute} {at.hour} {at.day} {at.month} ? {at.year}")
    schedule = _OF_KIND[kinds[0]](row, zone, start)
    return schedule.next(since - _MS) if row.once else start, schedule


def _last(row: Row, first: datetime | None) -> datetime | None:
    bounds = [first] if row.once and first else []
    if row.expires is not None:
        bounds.append(_ceil(aware(row.expires), _MS) - _MS)  # at that instant itself nothing is sent
    return min(bounds, default=None)


def _interval(row: Row, zone: tzinfo | None, start: datetime | None) -> Schedule:
    every, period = _found("interval", row.interval__every), row.interval__period
    if period not in _PERIODS:
        raise ValueError(f"its interval has the period {period!r}: give one of {', '.join(_PERIODS)}")
    return Every(timedelta(**{period: every}).total_seconds(), start)


def _crontab(row: Row, zone: tzinfo | None, start: datetime | None) -> Schedule:
    parts = [f"{_found('crontab', getattr(row, field))}" for field in _CRONTAB]
    try:
        cron = crontab(**{field.removeprefix("crontab__"): part for field, part in zip(_CRONTAB, parts, strict=True)})
    except Exception as error:
        raise ValueError(f"its crontab {' '.join(parts)}: {error}") from error
    days = cron.day_of_month, cron.month_of_year, cron.day_of_week
    return Crontab(cron.minute, cron.hour, *days, zone or zone_named(row.crontab_zone or ""))


def _solar(row: Row, zone: tzinfo | None, start: datetime | None) -> Schedule:
    event = _found("solar", row.solar__event)
    return schedule_of(
        solar(event, *(float(_found("solar", at)) for at in (row.solar__latitude, row.solar__longitude)))
    )


def _found(kind: str, value: T | None) -> T:
    if value is None:
        raise ValueError(f"the row of its {kind} is gone: give it another schedule")
    return value


def _ceil(at: datetime, unit: timedelta) -> datetime:
    """Return the first instant of whole units that is not before `at`."""
    over = timedelta(microseconds=at.microsecond) % unit
    return at + (unit - over if over else over)


_CRONTAB = [name for name in Row._fields if name.startswith("crontab__")]
_OF_KIND = {"interval": _interval, "crontab": _crontab, "solar": _solar}
