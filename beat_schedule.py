"""The periodic entries that the service always has. One sync per member comes from the nodelist (`tasks/members.py`).

Schedules are Quartz expressions in UTC: second minute hour day-of-month month day-of-week (1 = SUN) year.
"""

from tasks.settings import Settings

SETTINGS = Settings.from_environment()

BEAT_SCHEDULE = {
    # The nodelist's permanent store: what others changed there, and what it lacks.
    "nodelist": {
        "schedule": SETTINGS.refresh_interval,
        "task": "tasks.refresh.refresh_nodelist",
        "key": "nodelist",
        "when_busy": "skip",
    },
    # What the increments missed: every member from its first object to its last, on the member's own lane.
    "complete-passes": {
        "schedule": SETTINGS.complete_schedule,
        "task": "tasks.sync.complete_passes",
        "key": "complete-passes",
        "when_busy": "skip",
    },
}
