"""The Celery app of the service. CELERY_BROKER_URL and COORDINATOR_URL name its servers."""

import os

from celery import Celery

from beat_schedule import BEAT_SCHEDULE
from coordinator import Coordinator
from coordinator.documents.replica_set import label_of
from tasks.broker import broker_of
from tasks.settings import Settings

NODELIST = "nodelist"

_SETTINGS = Settings.from_environment()
_SCHEDULES = {"nodelist": _SETTINGS.refresh_interval, "complete-passes": _SETTINGS.complete_schedule}

_DECLARED = [_SETTINGS.components] if _SETTINGS.components else []
_TASKS = ["tasks.sync", "tasks.requests", "tasks.nodelist_refresh", "tasks.pipeline"]

app = Celery("tasks", include=[*_TASKS, *_DECLARED])
app.conf.update(
    **broker_of(os.environ),
    beat_schedule={name: {**entry, "schedule": _SCHEDULES[name]} for name, entry in BEAT_SCHEDULE.items()},
    beat_scheduler="coordinator.scheduler.Scheduler",
    enable_utc=True,
    timezone="UTC",
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
)
coordinator = Coordinator(app)
coordinator.documents.keep(NODELIST)
NODELIST_LABEL = label_of(NODELIST)
"""A sync runs only on a node that has it: there the list is never older than elsewhere."""
