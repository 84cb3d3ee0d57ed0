"""The periodic entries of the service, to be edited by its operators. Restart the beats to apply a change.

Each entry has the form of Celery's `beat_schedule`. An entry with a `key` is submitted as a job to the lane of that key
(docs/scheduler.md). `schedule` is a number of seconds, Celery's `crontab`, or a Quartz expression in UTC: second minute
hour day-of-month month day-of-week (1 = SUN) year. The setting TASKS_REFRESH_INTERVAL replaces the schedule of
`nodelist`, and TASKS_COMPLETE_SCHEDULE that of `complete-passes`.

The periodic sync of each member is not in this table: `tasks/schedules.py` makes those entries from the nodelist.
"""

BEAT_SCHEDULE: dict[str, dict[str, object]] = {
    # Synchronizes the nodelist with its permanent store, in both directions.
    "nodelist": {
        "schedule": 15.0,
        "task": "tasks.refresh.refresh_nodelist",
        "key": "nodelist",
        "when_busy": "skip",
    },
    # Harvests every member from its first object to its last, since incremental harvests may have missed objects.
    "complete-passes": {
        "schedule": "0 0 3 ? * SUN *",
        "task": "tasks.sync.complete_passes",
        "key": "complete-passes",
        "when_busy": "skip",
    },
    # Fetches the description that each member publishes of itself.
    "descriptions": {
        "schedule": "0 30 4 * * ? *",
        "task": "tasks.description.describe_members",
        "key": "descriptions",
        "when_busy": "skip",
    },
    # Sends new object events to the task named by the setting TASKS_ON_OBJECT; without it, this entry is left out.
    "events": {
        "schedule": 15.0,
        "task": "tasks.events.send_events",
        "key": "events",
        "when_busy": "skip",
    },
    # Deletes old object events.
    "old-events": {
        "schedule": "0 45 4 * * ? *",
        "task": "tasks.events.forget_events",
        "key": "old-events",
        "when_busy": "skip",
    },
}
