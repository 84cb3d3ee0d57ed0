"""Schedules in words are right, or the expression stands for itself."""

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import crontab, solar

from coordinator.scheduler.quartz import Quartz, QuartzError
from coordinator.scheduler.schedules import Bounded, Every, schedule_of
from coordinator.scheduler.words import words_of
from tests.harness.each import each

VECTORS = json.loads((Path(__file__).parents[2] / "samples" / "quartz_vectors.json").read_text())
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
APP = Celery(set_as_current=False)

SAID: list[tuple[Any, str]] = [
    ("0 0 3 ? * 2-6 *", "At 03:00, Monday through Friday (UTC)"),
    ("0 0 3 ? * 1 *", "At 03:00, only on Sunday (UTC)"),
    ("0 0 0 ? * L *", "At 00:00, only on Saturday (UTC)"),
    ("0 0 12 ? * 6L", "At 12:00, on the last Friday of the month (UTC)"),
    ("0 0 12 ? * 6#3", "At 12:00, on the third Friday of the month (UTC)"),
    ("0 0 12 LW * ?", "At 12:00, on the last weekday of the month (UTC)"),
    ("0 0/5 * * * ?", "Every 5 minutes (UTC)"),
    ("0 0 3/5 * * ?", "0 0 3/5 * * ? * (UTC)"),  # 23 to 3 o'clock are four hours
    ("0 0 0 ? * 7/5", "0 0 0 ? * 7/5 * (UTC)"),
    ("0 0 22-2 * * ?", "0 0 22-2 * * ? * (UTC)"),
    (15, "Every 15 seconds"),
    (1, "Every second"),
    (3600, "Every hour"),
    (0.5, "Every 0.5 seconds"),
    (90, "Every 90 seconds"),
    (crontab(minute="*/15", app=APP), "Every 15 minutes (UTC)"),
    (crontab(minute="30", hour="7", day_of_week="1-5", app=APP), None),
    (crontab("0", "9", day_of_month="13", month_of_year="1", day_of_week="fri", app=APP), "crontab 0 9 13 1 5 (UTC)"),
    (solar("sunset", 52.5, 13.4), "At sunset at 52.5, 13.4"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), SAID, ids=str)
def test_a_schedule_in_words(given: Any, said: str | None) -> None:
    expected = said or "At 07:30, only on Monday, Tuesday, Wednesday, Thursday, and Friday (UTC)"
    assert words_of(schedule_of(given)) == expected


def test_zone_jitter_and_bounds_are_told() -> None:
    nightly = Quartz("0 0 3 * * ?", ZoneInfo("Europe/Berlin"))
    bounded = Bounded(nightly, datetime(2027, 1, 1, tzinfo=UTC), None)
    assert words_of(bounded, 30) == "At 03:00 (Europe/Berlin), up to 30 s later, from 2027-01-01 00:00:00Z"
    assert words_of(Every(60), 5) == "Every minute, up to 5 s later"


def plain() -> list[tuple[str, str]]:
    """The vectors' expressions that are told in words."""
    found = {}
    for vector in VECTORS:
        if "next" in vector:
            expression = vector["expression"]
            try:
                said = words_of(Quartz(expression)).removesuffix(" (UTC)")
            except QuartzError:
                continue
            if " ".join(expression.upper().split()) not in (said, said.removesuffix(" *")):
                found[expression] = said
    return sorted(found.items())


def days_named(said: str) -> set[int] | None:
    """Monday 0; None where all days are meant, or days that depend on the month."""
    if re.search(r"(first|second|third|fourth|fifth|last) \w+day", said) or not any(day in said for day in DAYS):
        return None
    found = {DAYS.index(day) for day in DAYS if day in said}
    for first, last in re.findall(r"(\w+day) through (\w+day)", said):
        start, end = DAYS.index(first), DAYS.index(last)
        found |= {(start + n) % 7 for n in range((end - start) % 7 + 1)}
    return found


def test_enough_of_the_vectors_have_words() -> None:
    assert len(plain()) > 100


@each(plain)
def test_words_name_the_days_intervals_and_hours_on_which_the_vectors_expression_is_due(
    case: tuple[str, str],
) -> None:
    expression, said = case
    schedule, at = Quartz(expression), datetime(2026, 1, 1, tzinfo=UTC)
    instants: list[datetime] = []
    while len(instants) < 400 and (found := schedule.next(at)) is not None:
        instants.append(found)
        at = found
    if not instants:
        return
    if (days := days_named(said)) is not None:
        assert {one.weekday() for one in instants} <= days
        assert (
            len(instants) < 400 or {one.weekday() for one in instants} == days or "minute" in said or "second" in said
        )
    every = re.fullmatch(r"Every (?:(\d+) )?(second|minute|hour)s?(?:, starting at .*)?", said)
    if every:
        step = timedelta(**{every[2] + "s": int(every[1] or 1)})
        assert {later - earlier for earlier, later in pairwise(instants)} == {step}
    if time := re.match(r"At (\d\d):(\d\d)(?::(\d\d))?(?:,|$)", said):
        hour, minute, second = (int(part or 0) for part in time.groups())
        assert {(one.hour, one.minute, one.second) for one in instants} == {(hour, minute, second)}
