"""System checks: of the settings at each start, and what `coordinator check` says with `manage.py check --deploy`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.core.exceptions import ImproperlyConfigured

from coordinator.core.finding import Finding
from coordinator.core.jobs.validation import near
from coordinator.core.settings import Settings
from coordinator.django.project import project
from coordinator.django.site import DASHBOARD_URL
from coordinator.errors import SettingsError
from coordinator.ops.app_check import of_app as findings_of
from coordinator.ops.app_check import of_options

_BEGIN = "COORDINATOR_"
_KINDS = {"error": Error, "warning": Warning, "info": Info}


def of_settings(**_: object) -> Iterator[CheckMessage]:
    """Check that the project's Celery app is found, that the coordinator takes its settings, and tasks their keys."""
    try:
        app, coordinator = project().celery_app, project().coordinator
        yield from _misplaced(app.namespace or "")
        coordinator.settings  # noqa: B018  # made at its first use
        if not project().is_imported:
            said = "nothing imports the project's Celery app as Django starts, so a task goes to a broker that is none"
            hint = f"write `from .celery import app as celery_app` in {project().app_name}/__init__.py"
            yield Warning(said, hint, id="coordinator.app.import")
        with _once():
            options = list(of_options(app))
        yield from map(_message, options)
    except ImproperlyConfigured as error:
        yield Error(str(error), id="coordinator.app")
    except SettingsError as error:
        yield Error(str(error), id="coordinator.settings")


@contextmanager
def _once() -> Iterator[None]:
    """Have Celery import the project's tasks without running all of Django's checks again, and so this one."""
    name = "CELERY_SKIP_CHECKS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _misplaced(namespace: str) -> Iterator[CheckMessage]:
    """Find settings of Django that nobody reads: without the prefix that the Celery app names, or with a typo."""
    for name in dir(settings):
        if not name.startswith(_BEGIN) or name == DASHBOARD_URL:
            continue
        if (field := name.removeprefix(_BEGIN).lower()) in Settings.model_fields:
            if namespace:
                yield Error(
                    f"nobody reads the setting {name}: the Celery app takes its settings with the namespace "
                    f"{namespace!r}", f"write {namespace}_{name}", id="coordinator.setting",
                )  # fmt: skip
        else:
            known = [DASHBOARD_URL, *(f"{_BEGIN}{one.upper()}" for one in Settings.model_fields)]
            yield Error(f"unknown setting {name} ({field}){near(name, known)}", id="coordinator.setting")


def of_app(**_: object) -> Iterator[CheckMessage]:
    """Say what `coordinator check` says of the project's Celery app."""
    try:
        app = project().celery_app
        project().coordinator.settings  # noqa: B018  # made at its first use
    except (ImproperlyConfigured, SettingsError):
        return  # `of_settings` says so
    yield from (
        _message(found) for found in findings_of(app) if found.code != "app.coordinate"
    )  # `of_settings` says so


def _message(found: Finding) -> CheckMessage:
    return _KINDS[found.level](f"{found.thing}: {found.message}", found.fix, id=f"coordinator.{found.code}")
