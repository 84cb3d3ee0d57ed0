"""Schedules as authors give them, and the texts by which Redis keeps them."""

from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.schedules import crontab, schedule, solar

from coordinator.scheduler.quartz import QuartzError
from coordinator.scheduler.schedules import Crontab, Every, parse, schedule_of, text_of


def test_schedules_of_celery_are_understood_where_they_name_instants() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert schedule_of(schedule(timedelta(minutes=1))) == schedule_of(60) == Every(60.0)
    tuesday = schedule_of(crontab(minute="30", hour="7", day_of_week="tue", app=Celery(set_as_current=False)))
    assert isinstance(tuesday, Crontab)
    assert tuesday.next(noon) == datetime(2026, 11, 24, 7, 30, tzinfo=UTC)
    berlin = Celery(set_as_current=False, timezone="Europe/Berlin")
    assert schedule_of(crontab("30", "7", app=berlin)).next(noon) == datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
    for refused in (schedule(60, relative=True), True, object()):
        with pytest.raises(TypeError, match="is no schedule"):
            schedule_of(refused)
    with pytest.raises(QuartzError):
        schedule_of("*/5 * * * *")


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
