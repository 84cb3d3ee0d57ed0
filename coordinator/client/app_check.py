"""Reads an app before it is started: what of it will not work as jobs, or differs from plain Celery.

That is: its tasks and their source, the table of the beat, and this host's units of systemd. Nothing here writes.
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

from celery import Celery
from celery.app.task import Task

from coordinator.diagnosis.finding import Finding, Level
from coordinator.scheduler.entries import Entry

UNITS = Path("/etc/systemd/system")
_NOT_OWN = ("celery.", "coordinator.")
_WORKER = re.compile(r"^ExecStart=.*\bcelery\b.*\bworker\b", re.MULTILINE)


def of_app(app: Celery, units: Path = UNITS) -> Iterator[Finding]:
    """What of the app will not work, or differs. Imports its modules, as a worker does."""
    try:
        app.loader.import_default_modules()
    except (Exception, SystemExit) as error:
        wrong = f"{type(error).__name__}: {error}"
        yield Finding("error", "app.import", f"app {app.main}", f"a module cannot be imported: {wrong}", "mend it")
        return
    for name, task in sorted(app.tasks.items()):
        if not name.startswith(_NOT_OWN):
            yield from (*_of_task(task), *_of_body(task))
    yield from _of_table(app, app.conf.beat_schedule or {})
    yield from _of_units(units)


def _of_task(task: Task) -> Iterator[Finding]:
    if task.rate_limit:
        level: Level = "error" if getattr(task, "coordinate", None) else "info"
        said = f"its rate limit {task.rate_limit} is kept by no job"
        way_out = "set a limit on its lane (coordinator limit), or drop rate_limit"
        yield Finding(level, "app.rate-limit", f"task {task.name}", said, way_out)


def _of_body(task: Task) -> Iterator[Finding]:
    """What the source of a task calls. A task whose source cannot be read has none."""
    with suppress(OSError, TypeError, SyntaxError):
        for call in ast.walk(ast.parse(dedent(inspect.getsource(task.run)))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr == "replace" and _makes_parts(call) and getattr(task, "coordinate", None):
                said = "replace by a group or chord is refused where a part is in its own lane"
                way_out = "give the parts another key, or replace it by a chain"
                yield Finding("info", "app.replace", f"task {task.name}", said, way_out)


def _makes_parts(call: ast.Call) -> bool:
    made = [part.func for part in ast.walk(call) if isinstance(part, ast.Call)]
    return any(isinstance(name, ast.Name) and name.id in ("group", "chord") for name in made)


def _of_table(app: Celery, entries: object) -> Iterator[Finding]:
    if not isinstance(entries, Mapping):
        said = f"it is no table by names: {entries!r:.80}"
        yield Finding("error", "app.schedule", "beat_schedule", said, "write {name: {'task': …, …}}")
        return
    for name, row in entries.items():
        yield from _of_entry(app, name, row)


def _of_entry(app: Celery, name: str, row: object) -> Iterator[Finding]:
    thing = f"entry {name}"
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
        yield Finding("error", "app.schedule", thing, f"no beat sends it: {error}", "mend it in beat_schedule")
        return
    if following is None:
        said = "no instant is still to come"
        yield Finding("error", "app.schedule", thing, said, "mend its schedule in beat_schedule")
    if entry.task not in app.tasks:
        level: Level = "warning" if entry.key is None else "error"
        way_out = "import its module (imports, include), or mend the name"
        yield Finding(level, "app.schedule", thing, f"this app has no task {entry.task!r}", way_out)


def _of_units(units: Path) -> Iterator[Finding]:
    for path in sorted(units.glob("*.service")):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            if _WORKER.search(text) and "KillMode=mixed" not in text:
                said = "systemd stops all processes of the worker at once, jobs too"
                way_out = "set KillMode=mixed, and TimeoutStopSec above drain_timeout"
                yield Finding("warning", "app.unit", f"unit {path.name}", said, way_out)
