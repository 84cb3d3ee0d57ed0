"""Django in a test process: the settings of tests/harness/apps/project, in which each database is in memory.

A process has one Django, so all tests in it have this one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import django
import pytest
from celery import Celery, _state
from django.conf import settings

from coordinator import Coordinator
from tests.harness.apps.project import settings as project


def set_up() -> None:
    """The settings are given, not named, so that Celery apps of this process have no fixup of Django."""
    if not settings.configured:
        settings.configure(**{name: value for name, value in vars(project).items() if name.isupper()})
        django.setup()


@cache
def _added() -> frozenset[Callable[[Celery], None]]:
    """What makes the project's tasks known to an app. Celery would share them with all later apps of the process."""
    before, _state._on_app_finalizers = _state._on_app_finalizers, set()
    try:
        import_module("tests.harness.apps.project.tasks")
        return frozenset(_state._on_app_finalizers)
    finally:
        _state._on_app_finalizers = before


@contextmanager
def app_of_project(**settings: Any) -> Iterator[Celery]:
    """A Celery app of the project, with its tasks and a coordinator, which Django finds while this lasts."""
    set_up()
    from coordinator.django.project import project  # needs the settings

    app = Celery("project", broker="memory://", set_as_current=False)
    with Coordinator(app, **settings), pytest.MonkeyPatch.context() as patch:
        for add in _added():
            add(app)
        patch.setitem(vars(project()), "celery_app", app)
        patch.setitem(vars(project()), "app_name", "tests.harness.apps.project")
        yield app
    app.close()
