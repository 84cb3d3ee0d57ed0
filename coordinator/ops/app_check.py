"""Checks an app before it starts: finds what will not work as a job, and what works differently from plain Celery.

    $ coordinator -A shop check

It reads the app's tasks and their source, its `beat_schedule`, its other sources of schedule entries, those stored in
Redis, and this host's systemd units. It writes nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from textwrap import dedent
from weakref import WeakKeyDictionary

from celery import Celery
from celery.app.task import Task

from coordinator.core.celery_patches.declared import rate_limit
from coordinator.core.finding import Finding, Level
from coordinator.core.jobs.uses import rate_quota
from coordinator.core.threads import connections_closed
from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.scheduler.entry import STORED, Entry
from coordinator.scheduler.sources import names_of

UNITS = Path("/etc/systemd/system")
_NOT_OWN = ("celery.", "coordinator.")
_PUBLISHES = ("delay", "apply_async")
_OTHER = "give the called task another key, do not wait for it, or replace the task by a chain of its next steps"
_RISKS = (
    Finding("info", "app.replace", "", "self.replace is refused if a task of its group is in the job's lane", _OTHER),
    Finding("info", "app.return", "", "returning a group is refused if a task of it is in the job's lane", _OTHER),
    Finding("info", "app.get", "", "waiting for a task is refused if that task is in the job's lane", _OTHER),
    Finding("warning", "app.retry", "", "self.retry(throw=False) is refused: only a raise is a retry", "let it raise"),
)
_WORKER = re.compile(r"^ExecStart=.*\bcelery\b.*\bworker\b", re.MULTILINE)


_errors: WeakKeyDictionary[Celery, str] = WeakKeyDictionary()  # app -> its import error in this process, "" = none


def import_modules(app: Celery) -> str:
    """Import the app's task modules, as a worker does. Returns the error of a module that fails as text, else ""."""
    try:
        app.loader.import_default_modules()
        _errors[app] = ""
    except (Exception, SystemExit) as error:
        _errors[app] = f"{type(error).__name__}: {error}"
    return _errors[app]


def of_app(app: Celery, units: Path = UNITS, imports: bool = True) -> Iterator[Finding]:
    """Find what will not work as a job in this app, and what works differently from plain Celery.

    `units`: the folder of this host's systemd units. `imports`: import the app's task modules first; False: check only
    the tasks that this process has loaded.
    """
    if error := import_modules(app) if imports else _errors.get(app, ""):
        yield Finding(
            "error", "app.import", f"app {app.main}", f"a module cannot be imported: {error}", "fix the import"
        )
        return
    for task in _tasks(app):
        yield from (*_of_option(app, task), *_of_task(task), *_of_body(task))
    yield from _of_table(app, app.conf.beat_schedule or {})
    yield from _of_sources(app)
    yield from _of_stored(app)
    yield from _of_units(units)


def of_options(app: Celery) -> Iterator[Finding]:
    """Find the options `coordinate` with which no worker starts."""
    if not import_modules(app):
        for task in _tasks(app):
            yield from _of_option(app, task)


def _tasks(app: Celery) -> list[Task]:
    """Return the app's own tasks, by their names."""
    with suppress(SettingsError):  # a wrong `coordinate` option: `_of_option` reports it
        app.finalize()
    return [task for name, task in sorted(app.tasks.items()) if not name.startswith(_NOT_OWN)]


def _of_task(task: Task) -> Iterator[Finding]:
    if limit := rate_limit(task):
        message = f"its jobs keep the rate limit {limit} over the fleet, as quota {rate_quota(task.name)}"
        fix = f"coordinator quota {shlex.quote(rate_quota(task.name))} --rate … changes it"
        yield Finding("info", "app.rate-limit", f"task {task.name}", message, fix)


def _of_option(app: Celery, task: Task) -> Iterator[Finding]:
    try:
        app.coordinator._keyed_tasks.of(task)
    except SettingsError as error:
        message, fix = str(error).removeprefix(f"task {task.name}: "), "fix its `coordinate` option"
        yield Finding("error", "app.coordinate", f"task {task.name}", message, fix)


def _of_body(task: Task) -> Iterator[Finding]:
    """Find calls in the source of a task that the coordinator refuses in a job (`_RISKS`), at least in the job's lane.

    Yields nothing where the source cannot be read.
    """
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
    """Return the finding code (`app.retry` …) of a risky call in this syntax node, or None.

    `named`: variable -> the expression that the task's source assigns to it.
    """

    def calls(value: ast.AST | None, *names: str) -> bool:
        """True if the expression `value`, or one assigned to a variable in it, calls a function of these names."""
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
        message = f"it is not a table of entries by name: {entries!r:.80}"
        yield Finding("error", "app.schedule", "beat_schedule", message, "write {name: {'task': …, …}}")
        return
    for name, row in entries.items():
        yield from _of_entry(app, name, partial(Entry.from_table, name, row), "beat_schedule")


def _of_entry(app: Celery, name: str, make: Callable[[], Entry], where: str) -> Iterator[Finding]:
    thing = f"entry {name}"
    try:
        entry = make()
        schedule = entry.planned()
        entry.hash(schedule)
        following = schedule.next(datetime.now(UTC))
        if entry.task in app.tasks:
            entry.check_job(app.coordinator._requests)
            if (task := app.tasks[entry.task]).typing:
                task.__header__(*(entry.args or ()), **(entry.kwargs or {}))
    except (TypeError, ValueError) as error:
        yield Finding("error", "app.schedule", thing, f"no beat sends it: {error}", f"fix it in {where}")
        return
    if following is None and entry.last is None:
        message = "the schedule has no instant in the future"
        yield Finding("error", "app.schedule", thing, message, f"fix its schedule in {where}")
    if entry.task not in app.tasks:
        level: Level = "warning" if entry.key is None else "error"
        fix = "import its module (imports, include), or fix the name"
        yield Finding(level, "app.schedule", thing, f"this app has no task {entry.task!r}", fix)


def _of_sources(app: Celery) -> Iterator[Finding]:
    """Read the functions that give further entries (`schedule_source`), as a beat does."""
    for name, source in names_of(app.coordinator._schedule_sources):
        try:
            with connections_closed():
                entries = list(source()[1])
        except Exception as error:
            message = f"it cannot be read here: {type(error).__name__}: {error}"
            yield Finding("warning", "app.schedule", f"source {name}", message, "run this where beats run")
            continue
        for entry in entries:
            called = getattr(entry, "name", f"{entry!r:.80}")
            place = source.place(called) if hasattr(source, "place") else name
            yield from _of_entry(app, called, partial(_same, entry), place)
        if (other := app.conf.beat_scheduler) in getattr(source, "sent_by", ()):
            message = f"{other!r} sends the entries of {name}, too: each twice beside a beat of the coordinator"
            fix = "beat_scheduler = 'coordinator.scheduler.Scheduler' (CELERY_BEAT_SCHEDULER in Django's settings)"
            yield Finding("warning", "app.schedule", "beat_scheduler", message, fix)


def _same(entry: Entry) -> Entry:
    if not isinstance(entry, Entry):
        raise TypeError(f"give an Entry, not {entry!r:.80}")
    return entry


def _of_stored(app: Celery) -> Iterator[Finding]:
    """Check the schedule entries that code stored in Redis. Yields nothing while Redis does not answer."""
    with suppress(StoreUnavailable):
        entries = [entry for entry in app.coordinator.entries.all() if entry.source == STORED]
        having = set(app.tasks).union(*(node.tasks for node in app.coordinator.nodes()))
        for entry in entries:
            if entry.task not in having:
                message = f"neither this app nor a living node has its task {entry.task!r}"
                fix = "coordinator.entries.put it with the right name, or remove it"
                yield Finding("warning", "app.schedule", f"entry {entry.name}", message, fix)


def _of_units(units: Path) -> Iterator[Finding]:
    for path in sorted(units.glob("*.service")):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            if _WORKER.search(text) and "KillMode=mixed" not in text:
                message = "systemd stops all processes of the worker at once, jobs too"
                fix = "set KillMode=mixed, and TimeoutStopSec above drain_timeout"
                yield Finding("warning", "app.unit", f"unit {path.name}", message, fix)
