"""Does somebody have this task? Asked at submit: a job of a task that nobody ever has would hold its lane for ever."""

from __future__ import annotations

import sys
from contextlib import suppress

from celery import Celery

from coordinator.errors import InvalidJob
from coordinator.lanes import Lanes

_NOT_OWN = ("celery.", "coordinator.")


def check_known(app: Celery, lanes: Lanes, name: str) -> None:
    """Raises InvalidJob for a task that neither the app has, with all that its workers import, nor a living node of it.

    A producer without tasks of its own, which only names them, is believed while no node of the app lives.
    """
    if name in app.tasks:
        return
    with suppress(ImportError):
        app.loader.import_default_modules()
    if name in app.tasks:
        return
    living = lanes.tasks_of(app.main)
    if living is not None and name in living:
        return
    if living is not None or _has_own(app):
        raise InvalidJob(f"unknown task {name!r}: neither the app {app.main!r} nor a living node of it has it")


def _has_own(app: Celery) -> bool:
    """Whether some task was declared where this app is at hand. Celery gives each app the tasks of all others, too."""
    modules = {task.__module__ for name, task in app.tasks.items() if not name.startswith(_NOT_OWN)}
    return any(value is app for name in modules if (module := sys.modules.get(name)) for value in vars(module).values())
