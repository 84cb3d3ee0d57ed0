"""Schedules say when an entry is due: `Quartz`, `Every`, `Crontab`, `Solar`.

A schedule is any object with `next(after)`, the first instant strictly after, and a `str` that describes all of it.
Those named here also have a text, in which Redis keeps them and people write them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol, TypeAlias, cast

from celery.schedules import BaseSchedule, crontab, schedule, solar

from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.zones import zone_name
from coordinator.store.times import EPOCH

_MS = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1)
_SEARCHED = 366  # days to search for an event of the sun
_EVERY = re.compile(r"(?:every )?([0-9]+(?:\.[0-9]+)?)(?: s)?")
_CRONTAB = re.compile(r"crontab (\S+) (\S+) (\S+) (\S+) (\S+)")
_SPANS = (range(60), range(24), range(1, 32), range(1, 13), range(7))  # of a crontab's fields
_SOLAR = re.compile(r"solar (\w+) (\S+) (\S+)")


class Schedule(Protocol):
    def next(self, after: datetime) -> datetime | None: ...


Given: TypeAlias = Schedule | BaseSchedule | str | float | timedelta
"""As people write it: `Quartz` or its text (UTC), seconds, timedelta, Celery's `schedule`, `crontab` or `solar`."""


@dataclass(frozen=True)
class Every:
    """An interval in seconds, counted from the epoch, so that all beats mean the same instants."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds <= 366 * 86400 or timedelta(seconds=self.seconds) % _MS:
            raise ValueError(f"an interval of {self.seconds} s: give 0.1 s to 366 days, in whole milliseconds")

    def next(self, after: datetime) -> datetime | None:
        step = timedelta(seconds=self.seconds)
        return EPOCH + ((after - EPOCH) // step + 1) * step


class Crontab:
    """Celery's crontab: day of month *and* day of week (0 = Sunday) must fit."""

    def __init__(
        self,
        minutes: Collection[int],
        hours: Collection[int],
        mdays: Collection[int],
        months: Collection[int],
        wdays: Collection[int],
        tz: tzinfo = UTC,
    ) -> None:
        columns = zip((minutes, hours, mdays, months, wdays), _SPANS, strict=True)
        fields = ["*" if set(values) == set(span) else ",".join(map(str, sorted(values))) for values, span in columns]
        minute, hour, mday, month, _ = fields
        self.text = "crontab " + " ".join(fields)
        self._quartz = Quartz(f"0 {minute} {hour} {mday} {month} ? *", tz)
        self.tz = self._quartz.tz
        self._wdays = frozenset(wdays)
        if not self._wdays <= set(range(7)):
            raise ValueError(f"{self.text}: a day of the week is 0 (Sunday) to 6")

    def __str__(self) -> str:
        return f"crontab {self._quartz!r} {sorted(self._wdays)}"

    def next(self, after: datetime) -> datetime | None:
        at = self._quartz.next(after)
        while at is not None:
            local = at.astimezone(self._quartz.tz)
            if local.isoweekday() % 7 in self._wdays:
                break
            at = self._quartz.next(local.replace(hour=23, minute=59, second=59))
        return at


class Solar:
    """Celery's solar: an event of the sun at a place, to the second. None where it does not happen within a year."""

    def __init__(self, celery_solar: solar) -> None:
        self._sun = celery_solar.ephem.Sun()
        self._solar = celery_solar
        self.text = f"solar {celery_solar.event} {celery_solar.lat} {celery_solar.lon}"

    def __str__(self) -> str:
        return self.text

    def next(self, after: datetime) -> datetime | None:
        start = after.astimezone(UTC)
        while (about := self._event(start)) is not None:
            # The result depends a little on where the search begins: all beats begin it at the same instant.
            begin = about.replace(minute=0, second=0, microsecond=0) - 6 * _HOUR
            exact = self._event(begin) or about
            at = exact.replace(microsecond=0) + timedelta(seconds=1)
            if at > after:
                return at
            start = about + _HOUR
        return None

    def _event(self, start: datetime) -> datetime | None:
        celery_solar = self._solar
        more = {"use_center": True} if celery_solar.use_center else {}
        at = celery_solar.ephem.Date(start.replace(tzinfo=None))
        for _ in range(_SEARCHED):
            try:
                event = getattr(celery_solar.cal, celery_solar.method)(self._sun, start=at, **more)
            except celery_solar.ephem.CircumpolarError:
                at = celery_solar.cal.next_antitransit(self._sun, start=at)
            else:
                return cast(datetime, event.datetime()).replace(tzinfo=UTC)
        return None


@dataclass(frozen=True)
class Bounded:
    """A schedule with a first and a last instant."""

    schedule: Schedule
    first: datetime | None
    last: datetime | None

    def __str__(self) -> str:
        return f"{self.schedule} from {self.first} to {self.last}"

    def next(self, after: datetime) -> datetime | None:
        if self.first is not None:
            after = max(after, self.first - _MS)
        following = self.schedule.next(after)
        return None if following is None or (self.last is not None and following > self.last) else following


def schedule_of(value: Given, zone: tzinfo | None = None) -> Schedule:
    """Make a schedule of what people write. `zone`: of a text. Raises TypeError or ValueError (QuartzError)."""
    if isinstance(value, str):
        return parse(value, zone or UTC)
    if zone is not None:
        raise ValueError(f"{value!r} has no use for a zone: give it with an expression as text")
    if isinstance(value, Quartz | Every | Crontab | Solar):
        return value
    if isinstance(value, BaseSchedule):
        _check_celery(value)
    if isinstance(value, crontab):
        days = value.day_of_month, value.month_of_year, value.day_of_week
        return Crontab(value.minute, value.hour, *days, tz=value.tz)
    if isinstance(value, solar):
        return Solar(value)
    if type(value) is schedule:
        periodic: schedule = value
        value = periodic.run_every
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Every(float(value))
    raise TypeError(f"{value!r} is no schedule: give Quartz text, seconds, a timedelta, schedule, crontab or solar")


def _check_celery(value: BaseSchedule) -> None:
    """Raise TypeError for what a schedule of Celery says and nobody would heed here."""
    if value.nowfun is not None and getattr(value.nowfun, "__self__", None) is not value:
        raise TypeError(f"nowfun of {value!r}: beats take the time of Redis, a crontab the zone of its app's timezone")
    if getattr(value, "relative", False):
        raise TypeError(f"relative of {value!r}: intervals count from 1970 here: one of an hour is on the hour in UTC")


def parse(text: str, zone: tzinfo = UTC) -> Schedule:
    """Read a schedule: a Quartz expression, `every <seconds>`, or a text that `text_of` made. Raises ValueError."""
    if every := _EVERY.fullmatch(text.strip()):
        return Every(float(every[1]))
    if match := _CRONTAB.fullmatch(text):
        fields = zip(match.groups(), _SPANS, strict=True)
        minute, hour, mday, month, wday = (
            span if field == "*" else [int(number) for number in field.split(",")] for field, span in fields
        )
        return Crontab(minute, hour, mday, month, wday, zone)
    if match := _SOLAR.fullmatch(text):
        return Solar(solar(match[1], float(match[2]), float(match[3])))
    return Quartz(text, zone)


def text_of(schedule: Schedule) -> str | None:
    """The text from which `parse` and the zone make this schedule again; None for an author's own class."""
    if isinstance(schedule, Every):
        return f"every {schedule.seconds:g}" if float(f"{schedule.seconds:g}") == schedule.seconds else None
    if isinstance(schedule, Quartz):
        return schedule.expression if zone_name(schedule.tz) else None
    if isinstance(schedule, Crontab):
        return schedule.text if zone_name(schedule.tz) else None
    return schedule.text if isinstance(schedule, Solar) else None


def zone_of(schedule: Schedule) -> tzinfo:
    return schedule.tz if isinstance(schedule, Quartz | Crontab) else UTC
