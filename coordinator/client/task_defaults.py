"""The values that a job takes over from its Celery task: queue, time limits, whether its result is stored.

A job of a task that nobody has would hold its lane: `submit` asks here first. While no node lives, as in a restart of
all, it is believed.
"""

from __future__ import annotations

import difflib
import inspect
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from coordinator.celery_patches.declared import declared, rate_limit
from coordinator.errors import InvalidJob
from coordinator.jobs.arguments import checked
from coordinator.jobs.chain import inner, is_canvas
from coordinator.jobs.hidden import Hidden
from coordinator.jobs.options import JobDefaults, TaskDefault
from coordinator.jobs.spec import Signature, SignatureOptions
from coordinator.jobs.validation import near
from coordinator.lanes.client import LaneClient
from coordinator.settings import Settings

if TYPE_CHECKING:
    from celery import Celery
    from celery.app.task import Task

_NOT_OWN = ("celery.", "coordinator.")
_USUAL = "celery"
_MINUTE, _GUESSED = 60.0, 1.0
_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def target_of(
    app: Celery | None, lanes: LaneClient, fair_by: Callable[[str], str] | None, waits: bool = False
) -> JobDefaults:
    """`waits`: a task that nobody has is waited for. A plain client, which has no app, learns all from the nodes."""
    if app is None:
        return JobDefaults("", KnownToNodes(lanes, waits).default_of, fair_by)
    defaults = TaskDefaults(app, lanes, waits).default_of
    if app.conf.task_create_missing_queues:
        return JobDefaults(app.main, defaults, fair_by)
    return JobDefaults(app.main, defaults, fair_by, partial(_declared_queue, app))


def _declared_queue(app: Celery, queue: str) -> str:
    """Refuse a queue that Celery's router would not find."""
    try:
        return str(app.amqp.queues[queue].name)
    except KeyError:
        hint = near(queue, app.amqp.queues)
        raise InvalidJob(
            f"the queue {queue!r} is not in task_queues{hint}, and task_create_missing_queues is off: declare it there"
        ) from None


def place_of(app: Celery | None, lanes: LaneClient, task: str) -> tuple[str, str]:
    """The app and the queue of a task. Raises InvalidJob where neither the app nor a living node has it."""
    target = target_of(app, lanes, None, waits=True)
    default = target.default_of({"task": task})
    known = {*(app.tasks if app else ()), *(task for node in lanes.nodes() for task in node.tasks)}
    if task not in known:
        raise InvalidJob(f"no living node has the task {task!r}{near(task, known)}: start one first")
    return target.app if default.app is None else default.app, default.queue


class _Remembered:
    """A cache by task. What the nodes say counts for a minute, since a fleet may move a task."""

    def __init__(self, lanes: LaneClient, waits: bool) -> None:
        self._lanes = lanes
        self._waits = waits
        self._kept: dict[str, tuple[TaskDefault, float]] = {}

    def _keep(self, name: str, default: TaskDefault, seconds: float = _MINUTE) -> TaskDefault:
        self._kept[name] = default, time.monotonic() + seconds
        return default

    def _known(self, name: str) -> TaskDefault | None:
        kept = self._kept.get(name)
        return kept[0] if kept and time.monotonic() < kept[1] else None


class KnownToNodes(_Remembered):
    """The app and the queue of each task, as the nodes that have it say."""

    def default_of(self, signature: Signature) -> TaskDefault:
        """Raises InvalidJob for a task that no living node has, while any lives that might."""
        name = next(inner(signature))["task"] if is_canvas(signature) else signature["task"]
        if known := self._known(name):
            return known
        nodes = self._lanes.nodes()
        having = [node for node in nodes if name in node.tasks or name.startswith(_NOT_OWN)]
        if having:
            apps, node = {node.app for node in having}, having[0]
            queue = node.routes.get(name) or node.queue or _USUAL
            return self._keep(name, TaskDefault(queue, result=True, app=apps.pop() if len(apps) == 1 else ""))
        former = self._kept.get(name, (TaskDefault(_USUAL, result=True),))[0]
        if self._waits or not nodes or (former.app and former.app not in {node.app for node in nodes}):
            return self._keep(name, former, _GUESSED)
        known_tasks = {task for node in nodes for task in node.tasks}
        raise InvalidJob(f"no living node has the task {name!r}; {_ways_out(name, known_tasks)}")


class TaskDefaults(_Remembered):
    """Reads the defaults from the task and its app."""

    def __init__(self, app: Celery, lanes: LaneClient, waits: bool = False) -> None:
        super().__init__(lanes, waits)
        self._app = app

    def default_of(self, signature: Signature) -> TaskDefault:
        """The task's own values, unless the signature says otherwise. Raises InvalidJob for a task that nobody has."""
        name = signature["task"]
        default = self._known(name) or self._read(name)
        return default if default.queue else replace(default, queue=self._routed(name, signature))

    def _read(self, name: str) -> TaskDefault:
        """The queue is empty where the app routes each message by itself."""
        seconds = self._check_known(name)
        conf = self._app.conf
        task: Task | None = self._app.tasks.get(name)  # None: only nodes have it
        hard, soft = (declared(task, name) or conf[f"task_{name}"] for name in ("time_limit", "soft_time_limit"))
        queue = getattr(task, "queue", None) or ("" if conf.task_routes else conf.task_default_queue)
        ignored = getattr(task, "ignore_result", conf.task_ignore_result)
        result = type(self._app.backend).__name__ != "DisabledBackend" and not ignored
        if task is None:
            return self._keep(name, TaskDefault(queue, hard, soft, result), seconds)
        own, check = _own_options(task), partial(checked, task)
        return self._keep(name, TaskDefault(queue, hard, soft, result, own, check), math.inf)

    def _routed(self, name: str, signature: Signature) -> str:
        from celery.exceptions import QueueNotFound  # plain clients load no Celery

        app = self._app
        try:
            route = app.amqp.router.route({}, name, signature.get("args"), signature.get("kwargs"), app.tasks.get(name))
        except QueueNotFound as error:
            raise InvalidJob(f"{name}: {error.args[0]}") from error
        queue = route.get("queue")
        return str(getattr(queue, "name", queue) or app.conf.task_default_queue)

    def _check_known(self, name: str) -> float:
        """Raises InvalidJob for a task that neither the app has, with all that its workers import, nor a living node.

        While no node of the app lives, nobody knows: the job waits. For how long (s) the answer counts.
        """
        app = self._app
        if name in app.tasks:
            return _MINUTE
        with suppress(ImportError):
            app.loader.import_default_modules()
        if name in app.tasks or self._waits:
            return _MINUTE
        living = self._lanes.tasks_of(app.main)
        if living is None or name in living:
            return _MINUTE if living else _GUESSED
        known = {*living, *(task for task in app.tasks if not task.startswith(_NOT_OWN))}
        nobody = f"neither the app {app.main!r} nor a living node of it has it"
        raise InvalidJob(f"unknown task {name!r}: {nobody}; {_ways_out(name, known)}")


def _ways_out(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}if_unknown='wait' (--if-unknown wait) has the job wait for a node that has it"


def queues_of(app: Celery, tasks: Iterable[str]) -> dict[str, str]:
    """The queue of each of these tasks that does not go to the app's default queue."""
    defaults, queues = TaskDefaults(app, app.coordinator._core, waits=True), {}
    for name in tasks:
        with suppress(Exception):  # a router of the app may want arguments; a task with a rate limit has no jobs
            queue = defaults.default_of({"task": name}).queue
            if queue != app.conf.task_default_queue:
                queues[name] = queue
    return queues


def _own_options(task: Task) -> SignatureOptions:
    """Raises InvalidJob for a rate limit: a worker keeps it when it takes a message, and a job comes as none."""
    if limit := rate_limit(task):
        raise InvalidJob(
            f"{task.name} has the rate limit {limit}, which no job keeps: have a limit on its lane "
            "(set_limit), or submit a task without a rate_limit that calls it"
        )
    options: SignatureOptions = {}
    if (priority := getattr(task, "priority", None)) is not None:
        options["priority"] = priority
    if (expires := getattr(task, "expires", None)) is not None:
        options["expires"] = expires
    return options


def hidden_of(app: Celery | None, settings: Settings) -> Hidden:
    """Which values are hidden. Only a process with the task knows the names of arguments that were given by place."""

    def parameters(task: str) -> list[str] | None:
        known = app.tasks.get(task) if app else None
        try:
            found = inspect.signature(known.run).parameters.values() if known else None
        except (TypeError, ValueError):
            return None
        return None if found is None else [one.name for one in found if one.kind in _PLACES]

    return Hidden(settings.hidden, parameters)
