"""The AppConfig, which registers the system checks."""

from __future__ import annotations

from importlib import import_module

import django
from celery._state import _get_active_apps
from django.apps import AppConfig
from django.core import checks

from coordinator.django.checks import of_app, of_settings
from coordinator.django.project import LABEL, Project


class CoordinatorConfig(AppConfig):
    name = "coordinator.django"
    label = LABEL
    verbose_name = "Coordinator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        self.project = Project(any(app.main != "default" for app in _get_active_apps()))
        if django.VERSION >= (6, 0):
            import_module("django.tasks")  # registers Django's own check of TASKS, which asks each backend
        checks.register(of_settings, LABEL)
        checks.register(of_app, LABEL, deploy=True)
