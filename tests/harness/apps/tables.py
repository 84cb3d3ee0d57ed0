"""A Celery app of a Django project whose beats read the tables of django-celery-beat."""

import os

from celery import Celery

from coordinator import Coordinator
from coordinator.django.beat import PeriodicTaskSource

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.harness.apps.site_settings")
os.environ.setdefault("TEST_APPS", "django_celery_beat")

app = Celery("tables", broker=os.environ["TEST_BROKER"])
app.conf.task_default_queue = os.environ["COORDINATOR_PREFIX"]
coordinator = Coordinator(app)
coordinator.schedule_source(PeriodicTaskSource(coordinator))
