"""The project's Celery app, as Celery's documentation has it, with a coordinator."""

import os

from celery import Celery

from coordinator import Coordinator

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.harness.apps.project.settings")

app = Celery("project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
coordinator = Coordinator(app)
