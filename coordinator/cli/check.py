"""Reads an app before it is started: what of it will not work as jobs, or differs from plain Celery.

That is: its tasks and their source, the table of the beat, this host's units of systemd, and the settings of Redis.
Nothing here writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from celery import Celery
from celery.app.task import Task

from coordinator.diagnosis.status import warnings
from coordinator.scheduler.entries import Entry
from coordinator.store.client import Store

UNITS = Path("/etc/systemd/system")
_NOT_OWN = ("celery.", "coordinator.")
_WORKER = re.compile(r"^ExecStart=.*\bcelery\b.*\bworker\b", re.MULTILINE)


class Finding(NamedTuple):
    """`works`: False for what will not work, True for what differs from plain Celery or is a danger."""

    works: bool
    what: str
    way_out: str


def findings_of(app: Celery, store: Store, units: Path = UNITS) -> list[Finding]:
    """What of the app will not work, then what differs."""
    tasks = [task for name, task in sorted(app.tasks.items()) if not name.startswith(_NOT_OWN)]
    found = [finding for task in tasks for finding in (*_of_task(task), *_of_body(task))]
    found += _of_table(app, app.conf.beat_schedule or {})
    found += [*_of_units(units), *(Finding(True, *_parted(warning)) for warning in warnings(store))]
    return sorted(found, key=lambda finding: finding.works)


def _of_task(task: Task) -> Iterator[Finding]:
    if task.rate_limit:
        keyed = bool(getattr(task, "coordinate", None))
        what = f"task {task.name}: its rate limit {task.rate_limit} is kept by no job"
        yield Finding(not keyed, what, "set a limit on its lane (coordinator limit), or drop rate_limit")


def _of_body(task: Task) -> Iterator[Finding]:
    """What the source of a task calls. A task whose source cannot be read has none."""
    with suppress(OSError, TypeError, SyntaxError):
        for call in ast.walk(ast.parse(dedent(inspect.getsource(task.run)))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr == "replace" and _makes_parts(call) and getattr(task, "coordinate", None):
                what = f"task {task.name}: replace by a group or chord is refused where a part is in its own lane"
                yield Finding(True, what, "give the parts another key, or replace it by a chain")


def _makes_parts(call: ast.Call) -> bool:
    made = [part.func for part in ast.walk(call) if isinstance(part, ast.Call)]
    return any(isinstance(name, ast.Name) and name.id in ("group", "chord") for name in made)


def _of_table(app: Celery, entries: object) -> Iterator[Finding]:
    if not isinstance(entries, Mapping):
        yield Finding(False, f"beat_schedule is no table by names: {entries!r:.80}", "write {name: {'task': …, …}}")
        return
    for name, row in entries.items():
        yield from _of_entry(app, name, row)


def _of_entry(app: Celery, name: str, row: object) -> Iterator[Finding]:
    try:
        entry = Entry.from_table(name, row)
        schedule = entry.planned()
        entry.hash(schedule)
        following = schedule.next(datetime.now(UTC))
        if entry.task in app.tasks:
            entry.check_job(app.coordinator._requests)
            if (task := app.tasks[entry.task]).typing:
                task.__header__(*(entry.args or ()), **(entry.kwargs or {}))
    except (TypeError, ValueError) as error:
        yield Finding(False, f"schedule entry {name!r}: {error}", "no beat sends it; mend it")
        return
    if following is None:
        yield Finding(False, f"schedule entry {name!r}: no instant is still to come", "mend its schedule")
    if entry.task not in app.tasks:
        what = f"schedule entry {name!r}: this app has no task {entry.task!r}"
        yield Finding(entry.key is None, what, "import its module (imports, include), or mend the name")


def _of_units(units: Path) -> Iterator[Finding]:
    for path in sorted(units.glob("*.service")):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            if _WORKER.search(text) and "KillMode=mixed" not in text:
                what = f"unit {path.name}: systemd stops all processes of the worker at once, jobs too"
                yield Finding(True, what, "set KillMode=mixed, and TimeoutStopSec above drain_timeout")


def _parted(warning: str) -> tuple[str, str]:
    what, _, way_out = warning.rpartition(": ")
    return what, way_out
