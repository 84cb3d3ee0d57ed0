"""Schedules: when an entry is due. Any object with `next(after)`, the first instant strictly after, and a `str` that
tells all of it: `Quartz`, `Every`, `Crontab`, `Solar`. Each has a text, by which Redis keeps it and people name it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol, TypeAlias, cast
from zoneinfo import ZoneInfo

from celery.schedules import BaseSchedule, crontab, schedule, solar

from coordinator.scheduler.quartz import Quartz
from coordinator.store.times import EPOCH

_MS = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1)
_SEARCHED = 366  # days in which an event of the sun is looked for
_EVERY = re.compile(r"(?:every )?([0-9]+(?:\.[0-9]+)?)(?: s)?")
_CRONTAB = re.compile(r"crontab (\S+) (\S+) (\S+) (\S+) (\S+)")
_SOLAR = re.compile(r"solar (\w+) (\S+) (\S+)")


class Schedule(Protocol):
    def next(self, after: datetime) -> datetime | None: ...


Given: TypeAlias = Schedule | BaseSchedule | str | float | timedelta
"""As an author writes it: `Quartz` or its text (UTC), seconds, timedelta, Celery's `schedule`, `crontab` or `solar`."""


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
        fields = [",".join(map(str, sorted(values))) for values in (minutes, hours, mdays, months, wdays)]
        minute, hour, mday, month, _ = fields
        self.tz = tz
        self.text = "crontab " + " ".join(fields)
        self._quartz = Quartz(f"0 {minute} {hour} {mday} {month} ? *", tz)
        self._wdays = frozenset(wdays)

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

    def __init__(self, given: solar) -> None:
        self._sun = given.ephem.Sun()
        self._given = given
        self.text = f"solar {given.event} {given.lat} {given.lon}"

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
        given = self._given
        more = {"use_center": True} if given.use_center else {}
        at = given.ephem.Date(start.replace(tzinfo=None))
        for _ in range(_SEARCHED):
            try:
                found = getattr(given.cal, given.method)(self._sun, start=at, **more)
            except given.ephem.CircumpolarError:
                at = given.cal.next_antitransit(self._sun, start=at)
            else:
                return cast(datetime, found.datetime()).replace(tzinfo=UTC)
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
        found = self.schedule.next(after)
        return None if found is None or (self.last is not None and found > self.last) else found


def schedule_of(given: Given, zone: tzinfo | None = None) -> Schedule:
    """Raises TypeError, or ValueError (QuartzError), for anything that is no schedule. `zone`: of a text."""
    if isinstance(given, str):
        return parse(given, zone or UTC)
    if zone is not None:
        raise ValueError(f"{given!r} has no use for a zone: give it with an expression as text")
    if isinstance(given, Quartz | Every | Crontab | Solar):
        return given
    if isinstance(given, crontab):
        days = given.day_of_month, given.month_of_year, given.day_of_week
        return Crontab(given.minute, given.hour, *days, tz=given.tz)
    if isinstance(given, solar):
        return Solar(given)
    if type(given) is schedule:
        periodic: schedule = given
        given = periodic if periodic.relative else periodic.run_every
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Every(float(given))
    raise TypeError(f"{given!r} is no schedule: give Quartz text, seconds, a timedelta, schedule, crontab or solar")


def parse(text: str, zone: tzinfo = UTC) -> Schedule:
    """The schedule of a text: a Quartz expression, `every <seconds>`, or what `text_of` gave. Raises ValueError."""
    if every := _EVERY.fullmatch(text.strip()):
        return Every(float(every[1]))
    if found := _CRONTAB.fullmatch(text):
        minute, hour, mday, month, wday = ([int(one) for one in field.split(",")] for field in found.groups())
        return Crontab(minute, hour, mday, month, wday, zone)
    if found := _SOLAR.fullmatch(text):
        return Solar(solar(found[1], float(found[2]), float(found[3])))
    return Quartz(text, zone)


def text_of(schedule: Schedule) -> str | None:
    """The text from which `parse` makes this schedule again, beside its zone; None for one of a kind of its own."""
    if isinstance(schedule, Every):
        return f"every {schedule.seconds:g}" if float(f"{schedule.seconds:g}") == schedule.seconds else None
    if isinstance(schedule, Quartz):
        return schedule.expression if zone_name(schedule.tz) else None
    if isinstance(schedule, Crontab):
        return schedule.text if zone_name(schedule.tz) else None
    return schedule.text if isinstance(schedule, Solar) else None


def zone_of(schedule: Schedule) -> tzinfo:
    return schedule.tz if isinstance(schedule, Quartz | Crontab) else UTC


def zone_name(zone: tzinfo) -> str | None:
    """The name by which `ZoneInfo` finds it; None where it has none."""
    return "UTC" if zone is UTC else zone.key if isinstance(zone, ZoneInfo) else None


def zone_named(name: str) -> tzinfo:
    """Raises ValueError for a zone that nobody knows."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no time zone {name!r} is known here: give a name such as Europe/Berlin") from error
