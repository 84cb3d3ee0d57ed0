"""The periodic entries that the service always has. One sync per member comes from the nodelist (`tasks/members.py`).

Schedules are Quartz expressions in UTC: second minute hour day-of-month month day-of-week (1 = SUN) year.
"""

from tasks.settings import Settings

BEAT_SCHEDULE = {
    # What the increments missed: every member from its first object to its last, on the member's own lane.
    "complete-passes": {
        "schedule": Settings.from_environment().complete_schedule,
        "task": "tasks.sync.complete_passes",
        "key": "complete-passes",
        "when_busy": "skip",
    },
}
