"""The Celery app of the Django project, found by itself, and its coordinator."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import cast

from celery import Celery
from celery.app.utils import find_app
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from coordinator.coordinator import Coordinator

LABEL = "coordinator"  # of the app of Django


class Project:
    """`is_imported`: the Celery app was there as Django started. `mounted_at`: the path at which `with_dashboard`
    serves the dashboard in this process; None if it does not.
    """

    mounted_at: str | None = None

    def __init__(self, is_imported: bool) -> None:
        self.is_imported = is_imported

    @cached_property
    def app_name(self) -> str:
        """The name by which `celery -A` finds the project's Celery app: COORDINATOR_APP, or the nearest package around
        the settings that has one. Raises ImproperlyConfigured.
        """
        if named := os.environ.get("COORDINATOR_APP"):
            return named
        package: str = settings.SETTINGS_MODULE or ""  # None where the settings come from `settings.configure`
        while package := package.rpartition(".")[0]:
            with suppress(AttributeError):
                if isinstance(find_app(package), Celery):
                    return package
        raise ImproperlyConfigured(
            "no package around the project's settings has its Celery app: name the app, as celery -A does, in the "
            "environment variable COORDINATOR_APP"
        )

    @cached_property
    def celery_app(self) -> Celery:
        """Raises ImproperlyConfigured. The app is imported, where nobody has done that: `current_app` needs it."""
        try:
            app = find_app(self.app_name)
        except (AttributeError, ImportError) as error:
            raise ImproperlyConfigured(f"no Celery app {self.app_name!r}: {error}") from error
        if not isinstance(getattr(app, "coordinator", None), Coordinator):
            raise ImproperlyConfigured(
                f"the Celery app {self.app_name!r} has no coordinator: write coordinator = Coordinator(app) below it"
            )
        return app

    @property
    def coordinator(self) -> Coordinator:
        return cast(Coordinator, self.celery_app.coordinator)


def project() -> Project:
    """Raises ImproperlyConfigured where the app of Django is not installed."""
    try:
        return cast(Project, apps.get_app_config(LABEL).project)
    except LookupError as error:
        raise ImproperlyConfigured("add 'coordinator.django' to INSTALLED_APPS") from error
