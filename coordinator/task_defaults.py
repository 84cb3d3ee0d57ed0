"""The values that a job takes over from its Celery task: queue, time limits, whether its result is stored.

A job of a task that nobody has would hold its lane for ever: `submit` asks here first.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import InvalidJob
from coordinator.jobs.arguments import checked
from coordinator.jobs.chain import inner, is_canvas
from coordinator.jobs.options import Target, TaskDefault
from coordinator.jobs.spec import Signature, SignatureOptions
from coordinator.lanes.lanes import Lanes

if TYPE_CHECKING:
    from celery import Celery
    from celery.app.task import Task

_NOT_OWN = ("celery.", "coordinator.")
_USUAL = "celery"


def target_of(app: Celery | None, lanes: Lanes, fair_by: Callable[[str], str] | None, waits: bool = False) -> Target:
    """`waits`: a task that nobody has is waited for. A plain client, which has no app, learns all from the nodes."""
    if app is None:
        return Target("", KnownToNodes(lanes, waits).default_of, fair_by)
    return Target(app.main, TaskDefaults(app, lanes, waits).default_of, fair_by)


class KnownToNodes:
    """The app and the queue of each task, as the nodes that have it say. Read once for each task."""

    def __init__(self, lanes: Lanes, waits: bool) -> None:
        self._lanes = lanes
        self._waits = waits
        self._defaults: dict[str, TaskDefault] = {}

    def default_of(self, signature: Signature) -> TaskDefault:
        """Raises InvalidJob for a task that no living node has."""
        name = next(inner(signature))["task"] if is_canvas(signature) else signature["task"]
        if name in self._defaults:
            return self._defaults[name]
        nodes = self._lanes.nodes()
        having = [node for node in nodes if name in node.tasks or name.startswith(_NOT_OWN)]
        if having:
            apps, node = {one.app for one in having}, having[0]
            queue = node.routes.get(name) or node.queue or _USUAL
            found = TaskDefault(queue, result=True, app=apps.pop() if len(apps) == 1 else "")
            return self._defaults.setdefault(name, found)
        if self._waits:
            return TaskDefault(_USUAL, result=True)
        known = {task for node in nodes for task in node.tasks}
        raise InvalidJob(f"no living node has the task {name!r}; {_ways_out(name, known)}")


class TaskDefaults:
    """Read once for each task from the task and its app."""

    def __init__(self, app: Celery, lanes: Lanes, waits: bool = False) -> None:
        self._app = app
        self._lanes = lanes
        self._waits = waits
        self._defaults: dict[str, TaskDefault] = {}

    def default_of(self, signature: Signature) -> TaskDefault:
        """The task's own values, unless the signature says otherwise. Raises InvalidJob for a task that nobody has."""
        name = signature["task"]
        if name not in self._defaults:
            self._defaults[name] = self._read(name)
        found = self._defaults[name]
        return found if found.queue else replace(found, queue=self._routed(name, signature))

    def _read(self, name: str) -> TaskDefault:
        """The queue is empty where the app routes each message by itself."""
        self._check_known(name)
        conf = self._app.conf
        task: Task | None = self._app.tasks.get(name)  # None: only nodes have it
        hard, soft = (getattr(task, name, None) or conf[f"task_{name}"] for name in ("time_limit", "soft_time_limit"))
        queue = getattr(task, "queue", None) or ("" if conf.task_routes else conf.task_default_queue)
        ignored = getattr(task, "ignore_result", conf.task_ignore_result)
        result = type(self._app.backend).__name__ != "DisabledBackend" and not ignored
        if task is None:
            return TaskDefault(queue, hard, soft, result)
        return TaskDefault(queue, hard, soft, result, _own_options(task), partial(checked, task))

    def _routed(self, name: str, signature: Signature) -> str:
        app = self._app
        route = app.amqp.router.route({}, name, signature.get("args"), signature.get("kwargs"), app.tasks.get(name))
        queue = route.get("queue")
        return str(getattr(queue, "name", queue) or app.conf.task_default_queue)

    def _check_known(self, name: str) -> None:
        """Raises InvalidJob for a task that neither the app has, with all that its workers import, nor a living node.

        A producer without tasks of its own, which only names them, is believed while no node of the app lives.
        """
        app = self._app
        if name in app.tasks:
            return
        with suppress(ImportError):
            app.loader.import_default_modules()
        if name in app.tasks:
            return
        if self._waits:
            return
        living = self._lanes.tasks_of(app.main)
        if living is not None and name in living:
            return
        if living is not None or _has_own(app):
            known = {*(living or ()), *(task for task in app.tasks if not task.startswith(_NOT_OWN))}
            nobody = f"neither the app {app.main!r} nor a living node of it has it"
            raise InvalidJob(f"unknown task {name!r}: {nobody}; {_ways_out(name, known)}")


def _ways_out(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}unknown='wait' (--unknown wait) has the job wait for a node that has it"


def queues_of(app: Celery, tasks: Iterable[str]) -> dict[str, str]:
    """The queue of each of these tasks that does not go to the app's default queue."""
    defaults, found = TaskDefaults(app, app.coordinator.core, waits=True), {}
    for name in tasks:
        with suppress(Exception):  # a router of the app may want arguments; a task with a rate limit has no jobs
            queue = defaults.default_of({"task": name}).queue
            if queue != app.conf.task_default_queue:
                found[name] = queue
    return found


def _own_options(task: Task) -> SignatureOptions:
    """Raises InvalidJob for a rate limit: a worker keeps it when it takes a message, and a job comes as none."""
    if task.rate_limit:
        raise InvalidJob(
            f"{task.name} has the rate limit {task.rate_limit}, which no job keeps: have a limit on its lane "
            "(set_limit), or submit a task without a rate_limit that calls it"
        )
    options: SignatureOptions = {}
    if (priority := getattr(task, "priority", None)) is not None:
        options["priority"] = priority
    if (expires := getattr(task, "expires", None)) is not None:
        options["expires"] = expires
    return options


def _has_own(app: Celery) -> bool:
    """Whether some task was declared where this app is at hand. Celery gives each app the tasks of all others, too."""
    modules = {task.__module__ for name, task in app.tasks.items() if not name.startswith(_NOT_OWN)}
    return any(value is app for name in modules if (module := sys.modules.get(name)) for value in vars(module).values())
