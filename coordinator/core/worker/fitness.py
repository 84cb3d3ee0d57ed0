"""Checks, before a worker forks its pool, whether the worker can run jobs."""

from __future__ import annotations

import re
import sys
from contextlib import closing

from celery import Celery

from coordinator.core.fleet import processes
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.texts import check_name
from coordinator.errors import SettingsError

# Packages whose modules may hold a reference to the app, but do not define it.
_LIBRARIES = frozenset({"celery", "kombu", "coordinator", "flower"})


def why_unfit(app: Celery, node: str) -> str:
    """Check whether this worker can run jobs, and open its status file. Returns "", or else the reason why it cannot.
    Raises SystemExit in place of a reason if the setting `must_coordinate` is on, or the settings are wrong.
    """
    must = True
    try:
        must = app.coordinator.settings.must_coordinate
        locate(app)
        _check_names(app, node)
        with closing(app.coordinator.store):
            app.coordinator._status_file = _status_file()
            return ""
    except SettingsError as error:
        if must:
            raise SystemExit(f"this worker cannot run jobs: {error}") from error
        return str(error)


def _check_names(app: Celery, node: str) -> None:
    """Check the names of the node, its queues and its tasks. Raises SettingsError for a name that `check_name` refuses,
    since the node could not be registered with it.
    """
    try:
        check_name("node", node)
        for kind, names in (("queue", app.amqp.queues.consume_from), ("task", app.tasks)):
            for name in names:
                check_name(kind, name)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _status_file() -> StatusFile:
    """Open the runner status file of this worker. Raises SettingsError if the system has no usable /proc, or no memory
    or folder for the file.
    """
    try:
        if processes.condition(processes.identity()) != "alive":
            raise OSError("this process cannot see whether another one lives: mount /proc, without the option hidepid")
        return StatusFile.open()
    except OSError as error:
        raise SettingsError(
            f"this worker cannot create its runner status file: {error}; that needs /proc, 10 MB of memory within "
            "`ulimit -f`, and /dev/shm or TMPDIR to write to"
        ) from error


def check(app: Celery) -> None:
    """Raise SystemExit if the coordinator's Redis is too old."""
    with closing(app.coordinator.store) as store:
        try:
            store.check()
        except SettingsError as error:
            raise SystemExit(str(error)) from error


def locate(app: Celery) -> str:
    """Return the place from which a new process can import this app: `module:attribute`, or `path.py:attribute` for an
    app of the main program. The module of the option `-A` is preferred, since it may configure an app that another
    module defines. Raises SettingsError if no module has the app as an attribute.
    """
    named = [name for name in _named(sys.argv) if name in sys.modules]
    for name, module in [*((name, sys.modules[name]) for name in named), *sys.modules.items()]:
        if name.partition(".")[0] in _LIBRARIES:
            continue
        for attribute, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if value is app and not attribute.startswith("_"):
                place = getattr(module, "__file__", "") or "" if name == "__main__" else name
                spec = getattr(module, "__spec__", None) if name == "__main__" else None
                return f"{spec.name if spec else place}:{attribute}"
    raise SettingsError(f"the Celery app {app.main!r} is no attribute of any module, so maintenance cannot import it")


def _named(argv: list[str]) -> list[str]:
    """Return the names of the modules in which Celery looks for the app, by the option `-A` or `--app` in `argv`; []
    without that option.
    """
    for option, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := re.fullmatch(r"-A(?:=?)(.*)|--app(?:=(.*))?", option):
            name = (match[1] or match[2] or following).partition(":")[0]
            return [name, f"{name}.celery"]
    return []
