"""Quartz cron expressions: `sec min hour mday mon wday [year]`, weekday 1 = SUN, `?` in exactly one of mday and wday.

    Quartz("0 0 3 ? * SUN *", ZoneInfo("Europe/Berlin")).next(datetime.now(UTC))

An expression describes a set of wall times in a time zone; `next` finds the first instant after a given one. The times
of day are three sorted tuples. The days of a month depend only on the weekday of its first day and on its length, so a
`Quartz` computes each of the 28 kinds of month once. Years end at 2199, which bounds every search.

Where the Quartz library departs from its own documentation, this module follows the documentation (`MON-FRI/2` has a
step; `31W` means only the months that have a 31st) or raises QuartzError (`15W,20`, `MON#1,FRI`, `10-40;13`, step 0).

Daylight saving: if wall times of the schedule fall into the gap when clocks go forward, the schedule has one instant
for all of them, at the end of the gap. If a wall time occurs twice when clocks go back, only the first counts. So
`next` never goes back, and gives no instant twice.
"""

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple, Self

from coordinator.scheduler.zones import plain

# (weekday of the 1st of a month, 0 = SUN; length of the month) -> the matching days of that month
Days = Callable[[int, int], tuple[int, ...]]

_VALUE = "[0-9]{1,4}|[A-Z]{3}"
_ELEMENT = re.compile(rf"(?:\*|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)?(?:/(?P<step>[0-9]{{1,4}}))?")
_NTH_LAST = re.compile(r"L(?:-([0-9]{1,2}))?(W?)")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_LAST_WDAY = re.compile(r"([1-7]|[A-Z]{3})L")
_NTH_WDAY = re.compile(r"([1-7]|[A-Z]{3})#([1-5])")
_SECOND = timedelta(seconds=1)


class QuartzError(ValueError):
    """Raised for an invalid Quartz expression. The message names and quotes the wrong field, and shows what
    is allowed.
    """


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    way_out: str
    names: tuple[str, ...] = ()
    wraps: bool = True

    def error(self, text: str, why: str) -> QuartzError:
        return QuartzError(f"{self.name} {text!r}: {why}; write {self.way_out}")

    def number(self, token: str, text: str) -> int:
        if token in self.names:
            return self.low + self.names.index(token)
        if not token.isdigit() or not self.low <= int(token) <= self.high:
            raise self.error(text, f"{token} is not a value of this field")
        return int(token)

    def values(self, text: str) -> tuple[int, ...]:
        return _sorted(self, text)

    def _element(self, element: str, text: str) -> list[int]:
        parts = _ELEMENT.fullmatch(element) if element else None
        if parts is None:
            raise self.error(text, f"{element!r} is not understood" if element else "an element is empty")
        first, last, step = parts["first"], parts["last"], int(parts["step"] or 1)
        span = self.high - self.low + 1
        if not 1 <= step <= max(self.high, span - 1):
            raise self.error(text, f"a step of {step} is out of range")
        if first is None:
            return list(range(self.low, self.high + 1, step))
        start = self.number(first, text)
        if last is None:
            return list(range(start, (self.high if parts["step"] else start) + 1, step))
        if first.isdigit() != last.isdigit():
            raise self.error(text, "a range mixes a name and a number")
        end = self.number(last, text)
        if end < start and not self.wraps:
            raise self.error(text, "the range ends before it starts")
        end += span if end < start else 0
        return [self.low + (value - self.low) % span for value in range(start, end + 1, step)]


@lru_cache(4096)
def _values(field: _Field, text: str) -> frozenset[int]:
    """The values that `text` selects in a field of an expression, such as `0/15` in the minutes. Cached and shared
    between schedules, since a set of all years takes more memory than the rest of a schedule.
    """
    return frozenset(value for element in text.split(",") for value in field._element(element, text))


@lru_cache(4096)
def _sorted(field: _Field, text: str) -> tuple[int, ...]:
    return tuple(sorted(_values(field, text)))


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SEC = _Field("seconds", 0, 59, "0-59, *, a,b, a-b or a/n (n up to 59)")
_MIN = _Field("minutes", 0, 59, "0-59, *, a,b, a-b or a/n (n up to 59)")
_HOUR = _Field("hours", 0, 23, "0-23, *, a,b, a-b or a/n (n up to 23)")
_MDAY = _Field("day of month", 1, 31, "1-31, *, ?, a,b, a-b, a/n, or alone L, L-3, 15W, LW, L-3W")
_MON = _Field("month", 1, 12, "1-12 or JAN-DEC, *, a,b, a-b or a/n (n up to 12)", _MONTHS)
_WDAY = _Field("day of week", 1, 7, "1-7 (1 = SUN) or SUN-SAT, *, ?, a,b, a-b, a/n, or alone L, 6L, 6#3", _WDAYS)
_YEAR = _Field("year", 1970, 2199, "1970-2199, *, a,b, a-b or a/n", wraps=False)


def _nearest_weekday(day: int, first: int, length: int) -> tuple[int, ...]:
    """The day from Monday to Friday nearest to `day` in the same month; empty if the month has no such day. `first`:
    the weekday of the 1st, 0 = Sunday; `length`: the days of the month.
    """
    if not 1 <= day <= length:
        return ()
    wday = (first + day - 1) % 7
    if wday == 6:
        return (day - 1,) if day > 1 else (day + 2,)
    if wday == 0:
        return (day + 1,) if day < length else (day - 2,)
    return (day,)


def _month_days(text: str) -> Days:
    if last := _NTH_LAST.fullmatch(text):
        back, weekday = int(last[1] or 0), last[2]
        if back > 30:
            raise _MDAY.error(text, "no month is that long")
        if weekday:
            return lambda first, length: _nearest_weekday(length - back, first, length)
        return lambda _, length: (length - back,) if length > back else ()
    if nearest := _NEAREST.fullmatch(text):
        day = _MDAY.number(nearest[1], text)
        return lambda first, length: _nearest_weekday(day, first, length)
    days = _MDAY.values(text)
    return lambda _, length: days[: bisect_right(days, length)]


def _week_days(text: str) -> Days:
    if last := _LAST_WDAY.fullmatch(text):
        wday = _WDAY.number(last[1], text) - 1
        return lambda first, length: (length - (first + length - 1 - wday) % 7,)
    if nth := _NTH_WDAY.fullmatch(text):
        wday, weeks = _WDAY.number(nth[1], text) - 1, int(nth[2]) - 1
        return lambda first, length: tuple(d for d in (1 + (wday - first) % 7 + 7 * weeks,) if d <= length)
    wdays = {wday - 1 for wday in _WDAY.values("SAT" if text == "L" else text)}
    return lambda first, length: tuple(d for d in range(1, length + 1) if (first + d - 1) % 7 in wdays)


class Quartz:
    """The schedule of a Quartz cron expression in the time zone `tz`. An expression of six fields means any year.

    Two are equal if their expressions, in upper case and with the year, and their zones are equal.
    """

    def __init__(self, expression: str, tz: tzinfo = UTC) -> None:
        fields = expression.upper().split()
        if len(fields) == 6:
            fields.append("*")
        if len(fields) != 7:
            raise QuartzError(f"{expression!r} has {len(fields)} fields; write sec min hour mday mon wday [year]")
        sec, minute, hour, mday, mon, wday, year = fields
        if (mday == "?") == (wday == "?"):
            both = f"day of month {mday!r}, day of week {wday!r}"
            raise QuartzError(f"{both}: write '?' in exactly one of them, the one that does not matter")
        self.expression = " ".join(fields)
        self.tz = plain(tz)
        self.repaired: str | None = None
        self._seconds, self._minutes, self._hours = _SEC.values(sec), _MIN.values(minute), _HOUR.values(hour)
        self._earliest = self._hours[0], self._minutes[0], self._seconds[0]
        self._months, self._years = _values(_MON, mon), _values(_YEAR, year)
        self._last_year = max(self._years)
        self._rule = _week_days(wday) if mday == "?" else _month_days(mday)
        self._days: dict[tuple[int, int], tuple[int, ...]] = {}

    @classmethod
    def from_parts(
        cls, sec: str, min: str, hour: str, mday: str, mon: str, wday: str, year: str, tz: tzinfo = UTC
    ) -> Self:
        """Make a schedule of seven separate fields, such as XML attributes. These often have `?` in none
        or in both of the fields for days: that is repaired, and `repaired` says how; None: no repair was needed.
        """
        named = {"sec": sec, "min": min, "hour": hour, "mday": mday, "mon": mon, "wday": wday, "year": year}
        for name, text in named.items():
            if len(text.split()) != 1:
                raise QuartzError(f"{name} {text!r}: one field without spaces is needed; write '*' for any")
        mday, wday = mday.strip(), wday.strip()
        repaired = None
        if mday == wday == "?":
            mday, repaired = "*", "day of month '?' read as '*': day of week is '?' too"
        elif "?" not in (mday, wday):
            if mday == "*" and wday != "*":
                mday, repaired = "?", f"day of month '*' read as '?': day of week {wday!r} is given"
            else:
                repaired, wday = f"day of week {wday!r} read as '?': day of month {mday!r} is given", "?"
        quartz = cls(" ".join((sec, min, hour, mday, mon, wday, year)), tz)
        quartz.repaired = repaired
        return quartz

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quartz) and (self.expression, self.tz) == (other.expression, other.tz)

    def __hash__(self) -> int:
        return hash((self.expression, self.tz))

    def __repr__(self) -> str:
        return f"Quartz({self.expression!r})" if self.tz is UTC else f"Quartz({self.expression!r}, {self.tz})"

    def next(self, after: datetime) -> datetime | None:
        """The first instant of the schedule strictly after `after`, in UTC; None if there is none up to the year 2199.

        Raises ValueError if `after` has no time zone.
        """
        if after.tzinfo is None:
            raise ValueError(f"{after} has no time zone: an instant is needed")
        after = after.astimezone(UTC)
        if after.year > _YEAR.high + 1:
            return None
        after = max(after, datetime(1969, 12, 30, tzinfo=UTC))
        if self.tz is UTC:
            wall = self._at_or_after((after + _SECOND).replace(tzinfo=None))
            return wall and wall.replace(tzinfo=UTC)
        return self._next_in_zone(after)

    def _next_in_zone(self, after: datetime) -> datetime | None:
        wall = after.astimezone(self.tz).replace(tzinfo=None, fold=0) + _SECOND
        while (match := self._at_or_after(wall)) is not None:
            instant = self._instant(match)
            if instant > after:  # else this wall time occurs twice, and this is the second occurrence
                return instant
            wall = match + _SECOND
        return None

    def _instant(self, wall: datetime) -> datetime:
        before, beyond = (wall.replace(tzinfo=self.tz, fold=fold) for fold in (0, 1))
        instant = before.astimezone(UTC)
        if instant.astimezone(self.tz).replace(tzinfo=None, fold=0) == wall:
            return instant
        return self._change(beyond.astimezone(UTC), instant)

    def _change(self, low: datetime, high: datetime) -> datetime:
        """Find the instant, after `low` and up to `high`, at which the UTC offset of the schedule's zone changed."""
        offset = low.astimezone(self.tz).utcoffset()

        def changed(second: int) -> bool:
            return (low + _SECOND * second).astimezone(self.tz).utcoffset() != offset

        return low + _SECOND * bisect_left(range(int((high - low).total_seconds())), True, key=changed)

    def _at_or_after(self, wall: datetime) -> datetime | None:
        """The first wall time of the schedule that is not before `wall`; None if there is none up to 2199."""
        year, month, day = wall.year, wall.month, wall.day
        time = self._time(wall.hour, wall.minute, wall.second)
        if time is None:
            day += 1
        while year <= self._last_year:
            if year in self._years and month in self._months:
                days = self._days_of(year, month)
                at = bisect_left(days, day)
                if at < len(days):
                    today = (year, month, days[at]) == (wall.year, wall.month, wall.day)
                    return datetime(year, month, days[at], *(time if time and today else self._earliest))
            month, day = (month + 1, 1) if year in self._years else (13, 1)
            if month > 12:
                year, month = year + 1, 1
        return None

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        monday_first, length = monthrange(year, month)
        kind = (monday_first + 1) % 7, length
        if kind not in self._days:
            self._days[kind] = self._rule(*kind)
        return self._days[kind]

    def _time(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """The first time of day of the schedule that is not before the given one; None if the day has no such time
        left.
        """
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        at = bisect_left(hours, hour)
        if at < len(hours) and hours[at] == hour:
            past = bisect_left(minutes, minute)
            if past < len(minutes) and minutes[past] == minute:
                rest = bisect_left(seconds, second)
                if rest < len(seconds):
                    return hour, minute, seconds[rest]
                past += 1
            if past < len(minutes):
                return hour, minutes[past], seconds[0]
            at += 1
        return (hours[at], minutes[0], seconds[0]) if at < len(hours) else None
