"""The periodic entries of the service: change them, add others. Beats that start afterwards have them.

An entry is one of Celery's `beat_schedule`; with a `key` it is a job in that lane (docs/scheduler.md). A schedule is
seconds, Celery's `crontab`, or a Quartz expression in UTC: second minute hour day-of-month month day-of-week (1 = SUN)
year. TASKS_REFRESH_INTERVAL and TASKS_COMPLETE_SCHEDULE, where they are set, win over the schedules here.

One sync for each member comes from the nodelist (`tasks/schedules.py`).
"""

BEAT_SCHEDULE: dict[str, dict[str, object]] = {
    # The nodelist's permanent store: what others changed there, and what it lacks.
    "nodelist": {
        "schedule": 15.0,
        "task": "tasks.refresh.refresh_nodelist",
        "key": "nodelist",
        "when_busy": "skip",
    },
    # What the increments missed: every member from its first object to its last, on the member's own lane.
    "complete-passes": {
        "schedule": "0 0 3 ? * SUN *",
        "task": "tasks.sync.complete_passes",
        "key": "complete-passes",
        "when_busy": "skip",
    },
    # What the members say of themselves.
    "descriptions": {
        "schedule": "0 30 4 * * ? *",
        "task": "tasks.description.describe_members",
        "key": "descriptions",
        "when_busy": "skip",
    },
    # What became of objects, for the task that TASKS_ON_OBJECT names; without that setting, no beat has this entry.
    "events": {
        "schedule": 15.0,
        "task": "tasks.events.send_events",
        "key": "events",
        "when_busy": "skip",
    },
    "old-events": {
        "schedule": "0 45 4 * * ? *",
        "task": "tasks.events.forget_events",
        "key": "old-events",
        "when_busy": "skip",
    },
}
