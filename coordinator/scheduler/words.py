"""Schedules in words. Where a sentence would not be right for all instants, the expression stands for itself.

The words are cron-descriptor's. It counts weekdays as Quartz does (1 = SUN) and reads most expressions well, but steps
that do not divide their span, steps within lists and ranges that wrap around midnight it tells wrongly: those stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cron_descriptor import ExpressionDescriptor, FormatError, Options

from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Bounded, Crontab, Every, Schedule, Solar, text_of, zone_name, zone_of
from coordinator.store.times import moment

_STEP = re.compile(r"(\*|[0-9]+)/([0-9]+)")
_NAMES = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_MONTHS = re.compile(rf"(?:[0-9]+|{_NAMES})(?:-(?:[0-9]+|{_NAMES}))?(?:,(?:[0-9]+|{_NAMES}))*")
_DAYS = re.compile(r"\*|\?|L|LW|L-[0-9]+|[0-9]+W")
_WDAY = "[1-7]|SUN|MON|TUE|WED|THU|FRI|SAT"
_WDAYS = re.compile(rf"\*|\?|(?:{_WDAY})(?:-(?:{_WDAY}))?(?:,(?:{_WDAY})(?:-(?:{_WDAY}))?)*|(?:{_WDAY})(?:L|#[1-5])")
_WEEK = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SPANS = (60, 60, 24)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def words_of(schedule: Schedule, jitter: float = 0.0) -> str:
    """A sentence, or the expression."""
    inner = schedule.schedule if isinstance(schedule, Bounded) else schedule
    zone = zone_of(inner)
    said = _said(inner)
    if isinstance(inner, Quartz | Crontab):
        said += f" ({zone_name(zone) or zone})"
    if jitter:
        said += f", up to {jitter:g} s later"
    if isinstance(schedule, Bounded):
        said += f", from {moment(schedule.first)}" if schedule.first else ""
        said += f", until {moment(schedule.last)}" if schedule.last else ""
    return said


def _said(schedule: Schedule) -> str:
    if isinstance(schedule, Every):
        return _interval(schedule.seconds)
    if isinstance(schedule, Quartz):
        return _quartz(schedule.expression)
    if isinstance(schedule, Crontab):
        return _crontab(schedule.text) or schedule.text
    if isinstance(schedule, Solar):
        _, event, latitude, longitude = schedule.text.split()
        return f"At {event.replace('_', ' ')} at {latitude}, {longitude}"
    return text_of(schedule) or str(schedule)


def _interval(seconds: float) -> str:
    for size, unit in _UNITS:
        number = seconds / size
        if number >= 1 and number == int(number):
            return f"Every {unit}" if number == 1 else f"Every {number:.0f} {unit}s"
    return f"Every {seconds:g} seconds"


def _quartz(expression: str) -> str:
    fields = expression.split()
    if fields[5] == "L":
        fields[5] = "SAT"
    if not _is_plain(fields):
        return expression
    options = Options()
    options.day_of_week_start_index_zero = False
    options.use_24hour_time_format = True
    try:
        return str(ExpressionDescriptor(" ".join(fields), options))
    except FormatError:
        return expression


def _is_plain(fields: Sequence[str]) -> bool:
    """Does cron-descriptor tell it rightly?"""
    times = all(_is_time(field, span) for field, span in zip(fields[:3], _SPANS, strict=True))
    mday, month, wday, year = fields[3:]
    return (
        times
        and (bool(_DAYS.fullmatch(mday)) or _is_list(mday))
        and (month == "*" or bool(_MONTHS.fullmatch(month)) or _is_step(month, 12, 1))
        and bool(_WDAYS.fullmatch(wday))
        and (year == "*" or _is_list(year))
    )


def _is_time(field: str, span: int) -> bool:
    return field == "*" or _is_list(field) or _is_step(field, span, 0)


def _is_step(field: str, span: int, low: int) -> bool:
    """Steps that go on from one span to the next as within it."""
    found = _STEP.fullmatch(field)
    if not found or span % int(found[2]):
        return False
    return found[1] == "*" or low <= int(found[1]) < low + int(found[2])


def _is_list(field: str) -> bool:
    """Numbers, and ranges that do not wrap."""
    if not _LIST.fullmatch(field):
        return False
    ranges = (part.split("-") for part in field.split(",") if "-" in part)
    return all(int(first) <= int(last) for first, last in ranges)


def _crontab(text: str) -> str | None:
    """Celery's crontab: a day of the month and a day of the week that must both fit have no words."""
    numbers = [[int(number) for number in field.split(",")] for field in text.split()[1:]]
    minute, hour, mday, month, wday = numbers
    days = "*" if len(mday) == 31 else ",".join(map(str, mday))
    week = "*" if len(wday) == 7 else ",".join(_WEEK[day] for day in wday)
    if "*" not in (days, week):
        return None
    if week == "*":
        week = "?"
    else:
        days = "?"
    months = "*" if len(month) == 12 else ",".join(map(str, month))
    fields = ["0", _short(minute, 60), _short(hour, 24), days, months, week, "*"]
    said = _quartz(" ".join(fields))
    return said if said != " ".join(fields) else None


def _short(numbers: list[int], span: int) -> str:
    """`*`, a step, or the numbers."""
    if len(numbers) == span:
        return "*"
    step = numbers[1] - numbers[0] if len(numbers) > 2 else 0
    if step > 1 and span % step == 0 and numbers == list(range(numbers[0], span, step)) and numbers[0] < step:
        return f"{numbers[0]}/{step}"
    return ",".join(map(str, numbers))
