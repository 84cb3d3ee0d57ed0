"""The Celery app of the service: `celery -A tasks …`. CELERY_BROKER_URL and COORDINATOR_URL name its servers."""

import os

from celery import Celery

from beat_schedule import BEAT_SCHEDULE
from coordinator import Coordinator

NODELIST = "nodelist"

app = Celery("tasks", include=["tasks.sync", "tasks.adhoc", "tasks.refresh"])
app.conf.update(
    broker_url=os.environ.get("CELERY_BROKER_URL") or os.environ.get("COORDINATOR_URL") or "redis://127.0.0.1:6379/0",
    beat_schedule=BEAT_SCHEDULE,
    beat_scheduler="coordinator.scheduler.Scheduler",
    enable_utc=True,
    timezone="UTC",
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
)
coordinator = Coordinator(app)
coordinator.documents.keep(NODELIST)
