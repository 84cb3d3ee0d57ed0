"""The Celery app of the service. CELERY_BROKER_URL and COORDINATOR_URL name its servers."""

import os

from celery import Celery

from beat_schedule import BEAT_SCHEDULE
from coordinator import Coordinator
from tasks.broker import broker_of
from tasks.documents import Documents
from tasks.documents.replica_set import label_of
from tasks.settings import Settings

NODELIST = "nodelist"

_SETTINGS = Settings.from_environment()
_SCHEDULE = dict(BEAT_SCHEDULE)
for _name, _interval in {
    "nodelist": _SETTINGS.refresh_interval,
    "complete-passes": _SETTINGS.complete_schedule,
}.items():
    if _interval is not None and isinstance(_entry := _SCHEDULE.get(_name), dict):
        _SCHEDULE[_name] = {**_entry, "schedule": _interval}
if not _SETTINGS.on_object:
    _SCHEDULE.pop("events", None)

_DECLARED = [_SETTINGS.components, _SETTINGS.on_object.rpartition(".")[0]]
_TASKS = [
    "tasks.sync",
    "tasks.requests",
    "tasks.nodelist_refresh",
    "tasks.description",
    "tasks.events",
    "tasks.pipeline",
]

app = Celery("tasks", include=[*_TASKS, *filter(None, _DECLARED)])
app.conf.update(
    **broker_of(os.environ),
    beat_schedule=_SCHEDULE,
    beat_scheduler="coordinator.scheduler.Scheduler",
    enable_utc=True,
    timezone="UTC",
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
    coordinator_quota_unknown="open",  # that of a member has no bounds, unless an operator declares some
)
coordinator = Coordinator(app)
documents = Documents(coordinator, _SETTINGS.replica_dir)
documents.keep(NODELIST)
NODELIST_LABEL = label_of(NODELIST)
"""The label of the nodes in the nodelist's replica set. Syncs run only on these nodes, which have the newest list."""
