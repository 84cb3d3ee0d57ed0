"""Reads an app before it is started: what of it will not work as jobs, or differs from plain Celery.

That is: its tasks and their source, the table of the beat, and this host's units of systemd. Nothing here writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from weakref import WeakKeyDictionary

from celery import Celery
from celery.app.task import Task

from coordinator.celery_patches.declared import rate_limit
from coordinator.diagnosis.finding import Finding, Level
from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.scheduler.entry import STORED, Entry

UNITS = Path("/etc/systemd/system")
_NOT_OWN = ("celery.", "coordinator.")
_PUBLISHES = ("delay", "apply_async")
_OTHER = "give it another key, do not wait for it, or replace the task by a chain of its next steps"
_RISKS = (
    Finding(
        "info", "app.replace", "", "replace by a group or chord is refused where a part is in its own lane", _OTHER
    ),
    Finding("info", "app.return", "", "to return a group or chord is refused where a part is in its own lane", _OTHER),
    Finding("info", "app.get", "", "to wait for a call is refused where that is in its own lane", _OTHER),
    Finding(
        "warning", "app.retry", "", "self.retry(throw=False) is refused: a job has not succeeded then", "let it raise"
    ),
)
_WORKER = re.compile(r"^ExecStart=.*\bcelery\b.*\bworker\b", re.MULTILINE)


_wrong: WeakKeyDictionary[Celery, str] = WeakKeyDictionary()  # apps whose modules were imported here


def import_modules(app: Celery) -> str:
    """Import the app's modules, as a worker does, and return what is wrong with one of them."""
    try:
        app.loader.import_default_modules()
        _wrong[app] = ""
    except (Exception, SystemExit) as error:
        _wrong[app] = f"{type(error).__name__}: {error}"
    return _wrong[app]


def of_app(app: Celery, units: Path = UNITS, imports: bool = True) -> Iterator[Finding]:
    """What of the app will not work, or differs. `imports`: its modules first; else only what this process has of it
    is looked at.
    """
    if wrong := import_modules(app) if imports else _wrong.get(app, ""):
        yield Finding("error", "app.import", f"app {app.main}", f"a module cannot be imported: {wrong}", "mend it")
        return
    with suppress(SettingsError):  # each option that is wrong has its finding
        app.finalize()
    for name, task in sorted(app.tasks.items()):
        if not name.startswith(_NOT_OWN):
            yield from (*_of_option(app, task), *_of_task(task), *_of_body(task))
    yield from _of_table(app, app.conf.beat_schedule or {})
    yield from _of_stored(app)
    yield from _of_units(units)


def _of_task(task: Task) -> Iterator[Finding]:
    if getattr(task, "coordinate", None) and inspect.iscoroutinefunction(task.run) and not _runs_itself(task):
        said = "it is an async function, which Celery does not run: its jobs fail, except in a pool for asyncio"
        way_out = "give it a base class whose __call__ runs it by asyncio.run, or use such a pool"
        yield Finding("warning", "app.async", f"task {task.name}", said, way_out)
    if limit := rate_limit(task):
        level: Level = "error" if getattr(task, "coordinate", None) else "info"
        said = f"its rate limit {limit} is kept by no job"
        way_out = "set a limit on its lane (coordinator limit), or drop rate_limit"
        yield Finding(level, "app.rate-limit", f"task {task.name}", said, way_out)


def _runs_itself(task: Task) -> bool:
    """True if the task's class has a `__call__` of its own, which may run an async function."""
    return type(task).__call__ is not Task.__call__


def _of_option(app: Celery, task: Task) -> Iterator[Finding]:
    try:
        app.coordinator._keyed_tasks.of(task)
    except SettingsError as error:
        said, way_out = str(error).removeprefix(f"task {task.name}: "), "mend its option coordinate"
        yield Finding("error", "app.coordinate", f"task {task.name}", said, way_out)


def _of_body(task: Task) -> Iterator[Finding]:
    """What the source of a task does that a job in its own lane may not. One whose source cannot be read has none."""
    if not getattr(task, "coordinate", None):
        return
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(dedent(inspect.getsource(task.run)))
        named = {
            target.id: node.value
            for node in ast.walk(tree) if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Name)
        }  # fmt: skip
        codes = {_code(node, named) for node in ast.walk(tree)}
        yield from (replace(risk, thing=f"task {task.name}") for risk in _RISKS if risk.code in codes)


def _code(node: ast.AST, named: Mapping[str, ast.expr]) -> str | None:
    """The code of what a part of a source does; `named`: what its variables were made of."""

    def calls(value: ast.AST | None, *names: str) -> bool:
        """True if the value, or what its names were made of, calls one of these."""
        parts = list(ast.walk(value)) if value else []
        parts += [part for name in parts if isinstance(name, ast.Name) and name.id in named
                  for part in ast.walk(named[name.id])]  # fmt: skip
        made = [part.func for part in parts if isinstance(part, ast.Call)]
        return any(getattr(func, "attr", getattr(func, "id", "")) in names for func in made)

    if isinstance(node, ast.Return) and calls(node.value, "group", "chord") and calls(node.value, *_PUBLISHES):
        return "app.return"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr == "replace" and any(calls(arg, "group", "chord") for arg in node.args):
        return "app.replace"
    if node.func.attr in ("get", "wait", "join") and calls(node.func.value, *_PUBLISHES):
        return "app.get"
    quiet = [word for word in node.keywords if word.arg == "throw" and getattr(word.value, "value", True) is False]
    return "app.retry" if node.func.attr == "retry" and quiet else None


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


def _of_stored(app: Celery) -> Iterator[Finding]:
    """The entries that code stored in Redis, while that answers."""
    with suppress(StoreUnavailable):
        entries = [entry for entry in app.coordinator.entries.all() if entry.source == STORED]
        having = set(app.tasks).union(*(node.tasks for node in app.coordinator.nodes()))
        for entry in entries:
            if entry.task not in having:
                said = f"neither this app nor a living node has its task {entry.task!r}"
                way_out = "coordinator.entries.put it with the right name, or remove it"
                yield Finding("warning", "app.schedule", f"entry {entry.name}", said, way_out)


def _of_units(units: Path) -> Iterator[Finding]:
    for path in sorted(units.glob("*.service")):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            if _WORKER.search(text) and "KillMode=mixed" not in text:
                said = "systemd stops all processes of the worker at once, jobs too"
                way_out = "set KillMode=mixed, and TimeoutStopSec above drain_timeout"
                yield Finding("warning", "app.unit", f"unit {path.name}", said, way_out)
