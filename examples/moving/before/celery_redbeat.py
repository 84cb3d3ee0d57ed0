"""Entries in RedBeat's Redis, of the kinds that it has: python -m examples.moving.before.celery_redbeat"""

from celery.schedules import crontab, schedule
from redbeat import RedBeatSchedulerEntry
from redbeat.schedules import rrule

from examples.moving.shop import app


def main() -> None:
    report = "examples.moving.after.jobscheduler.summary"
    RedBeatSchedulerEntry("each second", report, schedule(1), app=app).save()
    RedBeatSchedulerEntry("at noon", report, crontab(hour="12", minute="0"), app=app).save()
    RedBeatSchedulerEntry("switched off", report, schedule(60), enabled=False, app=app).save()
    RedBeatSchedulerEntry("each month", report, rrule("MONTHLY", count=12), app=app).save()


if __name__ == "__main__":
    main()
