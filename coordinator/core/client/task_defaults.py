"""Finds the values that a job takes from its Celery task: queue, time limits, and whether the result is stored.

A job whose task no worker knows would block its lane, so `submit` validates the task here. If no node is alive, for
example while all restart, the task is assumed to exist.
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

from coordinator.core.celery_patches.declared import declared, rate_limit
from coordinator.core.jobs.arguments import checked
from coordinator.core.jobs.chain import inner, is_canvas
from coordinator.core.jobs.hidden import Hidden
from coordinator.core.jobs.options import JobDefaults, TaskDefault
from coordinator.core.jobs.rate import read_rate
from coordinator.core.jobs.spec import Signature, SignatureOptions
from coordinator.core.jobs.validation import near
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from celery import Celery
    from celery.app.task import Task

_NOT_OWN = ("celery.", "coordinator.")  # prefixes of tasks that every worker has
_USUAL = "celery"  # Celery's default queue
_MINUTE, _GUESSED = 60.0, 1.0  # seconds for which a value from nodes is cached, and one that was assumed
_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def target_of(
    app: Celery | None, lanes: LaneClient, fair_by: Callable[[str], str] | None, waits: bool = False
) -> JobDefaults:
    """Return the defaults for jobs of this app. Without an app, they come from the nodes in Redis.

    `fair_by`: as for `Coordinator`. `waits`: True to accept a task that no node has: its jobs wait for such a node.
    """
    if app is None:
        return JobDefaults("", KnownToNodes(lanes, waits).default_of, fair_by)
    defaults = TaskDefaults(app, lanes, waits).default_of
    if app.conf.task_create_missing_queues:
        return JobDefaults(app.main, defaults, fair_by)
    return JobDefaults(app.main, defaults, fair_by, partial(_declared_queue, app))


def _declared_queue(app: Celery, queue: str) -> str:
    """Return the name of a queue that the app declares in `task_queues`. Raises InvalidJob for any other."""
    try:
        return str(app.amqp.queues[queue].name)
    except KeyError:
        hint = near(queue, app.amqp.queues)
        raise InvalidJob(
            f"the queue {queue!r} is not in task_queues{hint}, and task_create_missing_queues is off: declare it there"
        ) from None


def place_of(app: Celery | None, lanes: LaneClient, task: str) -> tuple[str, str]:
    """Return the app's name and the queue of a task. Raises InvalidJob if neither the app nor a living node has the
    task.
    """
    target = target_of(app, lanes, None, waits=True)
    default = target.default_of({"task": task})
    known = {*(app.tasks if app else ()), *(task for node in lanes.nodes() for task in node.tasks)}
    if task not in known:
        raise InvalidJob(f"no living node has the task {task!r}{near(task, known)}: start one first")
    return target.app if default.app is None else default.app, default.queue


class _Remembered:
    """A cache of defaults by task name. Values from nodes expire after a minute, since a task may get another queue.
    `waits`: True to accept a task that no node has.
    """

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
    """Finds the app and the queue of a task from the nodes that have the task, for a client without a Celery app."""

    def default_of(self, signature: Signature) -> TaskDefault:
        """Return the defaults of the signature's task (of the first one, in a chain or group). Raises InvalidJob if
        nodes are alive and none has the task; but not if `waits` is set, or no node of the task's app is alive.
        """
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
    """Finds the defaults of a task from the Celery app. `waits`: True to accept a task that no node has."""

    def __init__(self, app: Celery, lanes: LaneClient, waits: bool = False) -> None:
        super().__init__(lanes, waits)
        self._app = app

    def default_of(self, signature: Signature) -> TaskDefault:
        """Return the defaults of the signature's task, with the queue to which the app routes the signature. Raises
        InvalidJob for an unknown task.
        """
        name = signature["task"]
        default = self._known(name) or self._read(name)
        return default if default.queue else replace(default, queue=self._routed(name, signature))

    def _read(self, name: str) -> TaskDefault:
        """Read the defaults of the task `name` from the app. The queue is "" if `task_routes` chooses one for each
        call.
        """
        seconds = self._check_known(name)
        conf = self._app.conf
        task: Task | None = self._app.tasks.get(name)  # None: the app lacks the task, but nodes have it
        hard, soft = (declared(task, name) or conf[f"task_{name}"] for name in ("time_limit", "soft_time_limit"))
        queue = getattr(task, "queue", None) or ("" if conf.task_routes else conf.task_default_queue)
        ignored = getattr(task, "ignore_result", conf.task_ignore_result)
        result = type(self._app.backend).__name__ != "DisabledBackend" and not ignored
        if task is None:
            return self._keep(name, TaskDefault(queue, hard, soft, result), seconds)
        own, check = _own_options(task), partial(checked, task)
        return self._keep(name, TaskDefault(queue, hard, soft, result, own, check, rate=_rate_of(task)), math.inf)

    def _routed(self, name: str, signature: Signature) -> str:
        from celery.exceptions import QueueNotFound  # imported here, since a client without an app loads no Celery

        app = self._app
        try:
            route = app.amqp.router.route({}, name, signature.get("args"), signature.get("kwargs"), app.tasks.get(name))
        except QueueNotFound as error:
            raise InvalidJob(f"{name}: {error.args[0]}") from error
        queue = route.get("queue")
        return str(getattr(queue, "name", queue) or app.conf.task_default_queue)

    def _check_known(self, name: str) -> float:
        """Check that the task `name` exists, and return for how many seconds this may be cached. Raises InvalidJob if
        neither the app, with all modules that its workers import, nor a living node has the task. If no node of the app
        is alive, the task is assumed to exist, and the job waits.
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
        reason = f"neither the app {app.main!r} nor a living node of that app has this task"
        raise InvalidJob(f"unknown task {name!r}: {reason}; {_ways_out(name, known)}")


def _ways_out(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}if_unknown='wait' (--if-unknown wait) lets the job wait for a node that has the task"


def queues_of(app: Celery, tasks: Iterable[str]) -> dict[str, str]:
    """Return task names and queues, for those of `tasks` that do not go to the app's default queue."""
    defaults, queues = TaskDefaults(app, app.coordinator._core, waits=True), {}
    for name in tasks:
        with suppress(Exception):  # a router of the app may want arguments
            queue = defaults.default_of({"task": name}).queue
            if queue != app.conf.task_default_queue:
                queues[name] = queue
    return queues


def _rate_of(task: Task) -> str:
    """The task's rate limit, as `<units>/<ms>`; "" where it has none. Raises InvalidJob for one that is no rate."""
    limit = rate_limit(task)
    return "{}/{}".format(*read_rate(limit)) if limit else ""


def _own_options(task: Task) -> SignatureOptions:
    """The options that the task sets."""
    options: SignatureOptions = {}
    if (priority := getattr(task, "priority", None)) is not None:
        options["priority"] = priority
    if (expires := getattr(task, "expires", None)) is not None:
        options["expires"] = expires
    return options


def hidden_of(app: Celery | None, settings: Settings) -> Hidden:
    """Return the rule that hides secret values from people. It knows the names of positional arguments only for tasks
    that are registered in `app`.
    """

    def names(task: str) -> list[str] | None:
        known = app.tasks.get(task) if app else None
        try:
            parameters = inspect.signature(known.run).parameters.values() if known else None
        except (TypeError, ValueError):
            return None
        return None if parameters is None else [one.name for one in parameters if one.kind in _PLACES]

    return Hidden(settings.hidden, names)
