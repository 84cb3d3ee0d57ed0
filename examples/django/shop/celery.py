"""The Celery app of the shop, and its coordinator."""

import os

from celery import Celery

from coordinator import Coordinator
from coordinator.django.beat import PeriodicTaskSource

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
coordinator = Coordinator(app)
coordinator.outbox()  # transactions write their jobs
coordinator.schedule_source(PeriodicTaskSource(coordinator))  # the admin's periodic tasks
