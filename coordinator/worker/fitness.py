"""Can a worker run jobs? It is asked before its pool forks."""

from __future__ import annotations

import re
import sys
from contextlib import closing, suppress

from celery import Celery

from coordinator.errors import CoordinatorError, SettingsError
from coordinator.fleet.nodes import Nodes

_NOT_HOME = frozenset({"celery", "kombu", "coordinator", "flower"})  # they only refer to the app


def hindrance(app: Celery) -> str:
    """Why this worker can run no jobs, whatever it waits for; '' where it can. Ends a worker that must run jobs, and
    one whose settings are wrong.
    """
    must = True
    try:
        must = app.coordinator.settings.must_coordinate
        locate(app)
        with closing(app.coordinator.store):
            return ""
    except SettingsError as error:
        if must:
            raise SystemExit(f"this worker cannot run jobs: {error}") from error
        return str(error)


def check(app: Celery) -> None:
    """End the worker whose Redis is too old."""
    with closing(app.coordinator.store) as store:
        try:
            store.check()
        except SettingsError as error:
            raise SystemExit(str(error)) from error


def is_taken(app: Celery, node: str) -> bool:
    """Whether a living worker has this name. If Redis cannot say, the worker does not wait for an answer."""
    with suppress(CoordinatorError), closing(app.coordinator.store) as store:
        return Nodes(store).is_alive(node)
    return False


def locate(app: Celery) -> str:
    """Where a new process finds this app: `module:attribute`, or `path.py:attribute` when it is the main program.

    The module that `-A` names comes first: it may configure an app that another one has made.
    """
    named = [name for name in _named(sys.argv) if name in sys.modules]
    for name, module in [*((name, sys.modules[name]) for name in named), *sys.modules.items()]:
        if name.partition(".")[0] in _NOT_HOME:
            continue
        for attribute, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if value is app and not attribute.startswith("_"):
                place = getattr(module, "__file__", "") or "" if name == "__main__" else name
                spec = getattr(module, "__spec__", None) if name == "__main__" else None
                return f"{spec.name if spec else place}:{attribute}"
    raise SettingsError(
        f"the Celery app {app.main!r} is no attribute of any module, where the errands of its node could find it"
    )


def _named(argv: list[str]) -> list[str]:
    """The modules that Celery looks for the app in, by the option `-A` or `--app` of this command line."""
    for option, following in zip(argv, [*argv[1:], ""], strict=True):
        if found := re.fullmatch(r"-A(?:=?)(.*)|--app(?:=(.*))?", option):
            name = (found[1] or found[2] or following).partition(":")[0]
            return [name, f"{name}.celery"]
    return []
