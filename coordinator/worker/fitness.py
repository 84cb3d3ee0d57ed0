"""Checks whether a worker can run jobs, before its pool forks."""

from __future__ import annotations

import re
import sys
from contextlib import closing

from celery import Celery

from coordinator.errors import SettingsError
from coordinator.fleet import processes
from coordinator.fleet.board import Board
from coordinator.texts import check_name

_LIBRARIES = frozenset({"celery", "kombu", "coordinator", "flower"})  # they refer to the app, but do not define it


def hindrance(app: Celery, node: str) -> str:
    """Open the board of this worker, or explain why it can never run jobs. Raises SystemExit where it must run jobs, or
    its settings cannot be read.
    """
    must = True
    try:
        must = app.coordinator.settings.must_coordinate
        locate(app)
        _check_names(app, node)
        with closing(app.coordinator.store):
            app.coordinator._board = _board()
            return ""
    except SettingsError as error:
        if must:
            raise SystemExit(f"this worker cannot run jobs: {error}") from error
        return str(error)


def _check_names(app: Celery, node: str) -> None:
    """Raises SettingsError for a name under which this worker cannot be registered."""
    try:
        check_name("node", node)
        for what, names in (("queue", app.amqp.queues.consume_from), ("task", app.tasks)):
            for name in names:
                check_name(what, name)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _board() -> Board:
    """Raises SettingsError where the system lacks what a node needs of it."""
    try:
        if processes.condition(processes.identity()) != "alive":
            raise OSError("nobody can tell whether a process lives: mount /proc, and not with hidepid")
        return Board.open()
    except OSError as error:
        raise SettingsError(
            f"this system does not let it keep a board: {error}; it needs /proc, 10 MB of memory within `ulimit -f`, "
            "and /dev/shm or TMPDIR to write to"
        ) from error


def check(app: Celery) -> None:
    """Raise SystemExit if the coordinator's Redis is too old."""
    with closing(app.coordinator.store) as store:
        try:
            store.check()
        except SettingsError as error:
            raise SystemExit(str(error)) from error


def locate(app: Celery) -> str:
    """Name the place from which a new process can import this app: `module:attribute`, or `path.py:attribute` for the
    main program. The module that `-A` names comes first, since it may configure an app that another module defines.
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
    raise SettingsError(
        f"the Celery app {app.main!r} is no attribute of any module, so the errands of its node cannot import it"
    )


def _named(argv: list[str]) -> list[str]:
    """The modules in which Celery looks for the app, by the option `-A` or `--app` of this command line."""
    for option, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := re.fullmatch(r"-A(?:=?)(.*)|--app(?:=(.*))?", option):
            name = (match[1] or match[2] or following).partition(":")[0]
            return [name, f"{name}.celery"]
    return []
