"""The kinds of schedule that an entry may have: `Quartz`, `Every` (an interval), `Crontab` and `Solar`.

A schedule is any object with a method `next(after)`, which returns the first instant strictly after `after`, and a
`str()` that describes it completely, since beats compare entries by that. These four can also be written as text, which
Redis stores (`text_of`) and people write (`parse`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol, TypeAlias, cast

from celery.schedules import BaseSchedule, crontab, schedule, solar

from coordinator.core.store.times import EPOCH
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.zones import zone_name

_MS = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1)
_SEARCHED = 366  # days to search for an event of the sun
_EVERY = re.compile(r"(?:every )?([0-9]+(?:\.[0-9]+)?)(?: s)?(?: from (\S+))?")
_CRONTAB = re.compile(r"crontab (\S+) (\S+) (\S+) (\S+) (\S+)")
_SPANS = (range(60), range(24), range(1, 32), range(1, 13), range(7))  # the values of a crontab's five fields
_SOLAR = re.compile(r"solar (\w+) (\S+) (\S+)")


class Schedule(Protocol):
    def next(self, after: datetime) -> datetime | None: ...


Given: TypeAlias = Schedule | BaseSchedule | str | float | timedelta
"""What `schedule_of` accepts as a schedule: `Quartz` or its text (UTC), a number of seconds, a timedelta, or Celery's
`schedule`, `crontab` or `solar`.
"""


@dataclass(frozen=True)
class Every:
    """A schedule with an instant each so many `seconds`, counted from 1970, so that all beats have the
    same instants; or from `start`, which is the first instant.
    """

    seconds: float
    start: datetime | None = None

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds <= 366 * 86400 or timedelta(seconds=self.seconds) % _MS:
            raise ValueError(f"an interval of {self.seconds} s: give 0.1 s to 366 days, in whole milliseconds")
        if self.start is not None and (self.start.tzinfo is None or self.start.microsecond % 1000):
            raise ValueError(f"an interval from {self.start}: give a zone, and whole milliseconds")

    def __str__(self) -> str:
        return f"Every(seconds={self.seconds})" + (f" from {self.start.astimezone(UTC)}" if self.start else "")

    def next(self, after: datetime) -> datetime | None:
        if self.start and after < self.start:
            return self.start
        start, step = self.start or EPOCH, timedelta(seconds=self.seconds)
        return start + ((after - start) // step + 1) * step


class Crontab:
    """A schedule with the meaning of Celery's `crontab`: minute, hour, day of month, month *and* day of week (0 =
    Sunday) must all match, in the time zone `tz`.
    """

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
    """A schedule with the meaning of Celery's `solar`: an event of the sun, such as sunset, at a place, to the second.
    `next` returns None if the event does not happen within a year.
    """

    def __init__(self, celery_solar: solar) -> None:
        self._sun = celery_solar.ephem.Sun()
        self._solar = celery_solar
        self.text = f"solar {celery_solar.event} {celery_solar.lat} {celery_solar.lon}"

    def __str__(self) -> str:
        return self.text

    def next(self, after: datetime) -> datetime | None:
        start = after.astimezone(UTC)
        while (about := self._event(start)) is not None:
            # The computed time depends slightly on the start of the search, so all beats search from the same instant.
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
    """The instants of `schedule` from `first` to `last`, both included; None: no limit."""

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
    """Make a schedule of a value that people may give, such as seconds or Celery's `crontab`. `zone`: the time zone of
    an expression given as text, None = UTC. Raises TypeError or ValueError (QuartzError) for anything else.
    """
    if isinstance(value, str):
        return parse(value, zone or UTC)
    if zone is not None:
        raise ValueError(f"{value!r} takes no zone: only an expression given as text does")
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
    """Raise TypeError if a Celery schedule has a `nowfun` or `relative=True`, which this scheduler does not support."""
    if value.nowfun is not None and getattr(value.nowfun, "__self__", None) is not value:
        raise TypeError(
            f"nowfun of {value!r} has no effect: beats use the clock of Redis, a crontab the app's timezone"
        )
    if getattr(value, "relative", False):
        raise TypeError(
            f"relative of {value!r} has no effect: intervals count from 1970, so one of an hour is on the hour"
        )


def parse(text: str, zone: tzinfo = UTC) -> Schedule:
    """Parse the text of a schedule in the time zone `zone`: a Quartz expression, `every <seconds>` or `every <seconds>
    from <instant>`, or a text that `text_of` returned. Raises ValueError for any other text.
    """
    if every := _EVERY.fullmatch(text.strip()):
        return Every(float(every[1]), datetime.fromisoformat(every[2]) if every[2] else None)
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
    """The text from which `parse`, given the same zone, makes an equal schedule. None if there is no such text: the
    zone has no name, or the schedule is of a class of the app's own.
    """
    if isinstance(schedule, Every):
        start = f" from {schedule.start.astimezone(UTC).isoformat()}" if schedule.start else ""
        return f"every {schedule.seconds:g}{start}" if float(f"{schedule.seconds:g}") == schedule.seconds else None
    if isinstance(schedule, Quartz):
        return schedule.expression if zone_name(schedule.tz) else None
    if isinstance(schedule, Crontab):
        return schedule.text if zone_name(schedule.tz) else None
    return schedule.text if isinstance(schedule, Solar) else None


def zone_of(schedule: Schedule) -> tzinfo:
    return schedule.tz if isinstance(schedule, Quartz | Crontab) else UTC
