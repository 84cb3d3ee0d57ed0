"""Sends calls of keyed tasks through their lanes.

    delay, apply_async, canvas, links, beats ─► Task.apply_async ─► app.send_task ─► a producer
                                                                    ours             ours, where the task is keyed

Celery checks the arguments, merges the options, routes, makes the message and sends its signals and events. Only the
last step is ours: the producer, which would publish the message, submits it as a job. So all that Celery knows of a
call goes into the job, and a user's own `apply_async` in a base class is still called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypedDict, cast

from celery import Celery
from celery.app.task import Task
from celery.result import AsyncResult
from kombu.connection import Connection
from kombu.messaging import Producer

from coordinator.celery_patches.declared import undo
from coordinator.celery_patches.result_backend import leave_alone
from coordinator.errors import InvalidJob, SettingsError, StoreUnavailable
from coordinator.jobs.arguments import checked_call, in_canvas
from coordinator.jobs.options import SubmitOptions
from coordinator.jobs.request import KeyedCall, RequestMaker, check_signature
from coordinator.jobs.spec import Message, Signature
from coordinator.jobs.submission import Submission
from coordinator.jobs.validation import OwnId
from coordinator.keyed_task.coordinate import KeyedTask, read
from coordinator.keyed_task.lane_producer import LaneProducer, LaneUnavailable
from coordinator.keyed_task.message import PAST
from coordinator.lanes.client import LaneClient
from coordinator.settings import Settings

_NOT_OURS = ("celery.", "coordinator.")


class LaneHost(Protocol):
    """The attributes of a Coordinator that put a call in line."""

    @property
    def _core(self) -> LaneClient: ...

    @property
    def _requests(self) -> RequestMaker: ...

    @property
    def settings(self) -> Settings: ...

    def _check_open(self) -> None: ...


class Sending(TypedDict, total=False):
    """The options of `app.send_task` that this module reads; Celery has more."""

    task_type: Task | None
    task_id: str | None
    headers: dict[str, object] | None
    chain: list[Signature] | None
    chord: Signature | None
    producer: Producer | None
    publisher: Producer | None
    connection: Connection | None
    result_cls: Callable[[str], AsyncResult] | None
    coordinate: bool | None
    argsrepr: str | None
    kwargsrepr: str | None


class KeyedTasks:
    """The keyed tasks of one app. `install` puts them between its calls and its broker."""

    def __init__(self, app: Celery, host: LaneHost) -> None:
        self._app = app
        self._host = host
        self._known: dict[str, tuple[Task, KeyedTask | None]] = {}

    def install(self) -> None:
        """A repeated call would submit each call twice: there is one coordinator to an app."""
        app = self._app
        send: Callable[..., AsyncResult] = _usual(app, "send_task")
        finalize = _usual(app, "finalize")
        names = list(inspect.signature(app.send_task).parameters)[:-1]

        def send_task(name: str, *args: object, coordinate: object = None, **named: object) -> AsyncResult:
            options = cast(Sending, named | dict(zip(names[1:], args, strict=False)))
            tick = options.get("task_id")
            if isinstance(tick, OwnId):  # of which an `apply_async` may make several calls
                with tick.of_call() as own:
                    return send_one(name, coordinate, {**options, "task_id": own})
            return send_one(name, coordinate, options)

        def send_one(name: str, coordinate: object, options: Sending) -> AsyncResult:
            self._check_rest(options)
            task = options.get("task_type") or app._tasks.get(name)
            keyed = self.of(task) if task is not None else None
            if task is None or keyed is None:
                return send(name, **options)
            if coordinate not in (None, True, False):
                raise SettingsError(f"{name}: coordinate is False at a call, or not named; not {coordinate!r}")
            if coordinate is False or (options.get("headers") or {}).get(PAST) is False:
                return send(name, **options | {"headers": {**(options.get("headers") or {}), PAST: False}})
            undo(task, cast(dict[str, object], options))
            return self._through_lane(send, name, keyed, options)

        def finalized(auto: bool = False) -> None:
            first = not app.finalized
            finalize(auto)
            if first:
                self.check()

        app.send_task, app.finalize = send_task, finalized

    def submit(self, keys: Sequence[str], signature: Signature, options: SubmitOptions, call: KeyedCall) -> Submission:
        self._host._check_open()
        return self._host._core.submit(self._host._requests.make(keys, signature, options, call))

    def of(self, task: Task) -> KeyedTask | None:
        """The option of a task, read once; None for tasks of Celery and ours, whatever annotations for all tasks say.

        Raises SettingsError.
        """
        if task.name.startswith(_NOT_OURS):
            return None
        known = self._known.get(task.name)
        if known is None or known[0] is not task:
            known = self._known[task.name] = task, read(task)
        return known[1]

    def named(self, name: str) -> KeyedTask | None:
        """The option of the task of this name; None where the app lacks the task."""
        if name not in self._app.tasks:
            with suppress(ImportError):
                self._app.loader.import_default_modules()
        task = self._app.tasks.get(name)
        return None if task is None else self.of(task)

    def lanes_of(self, signature: Signature, before: int) -> tuple[str, ...] | None:
        """The lanes of a call in a canvas; () where it goes past its lanes, None where its key needs a later result.

        `before`: the number of results that the call gets in front of its arguments.
        """
        keyed, options = self.named(signature["task"]), cast(Sending, signature.get("options") or {})
        past = options.get("coordinate") is False or (options.get("headers") or {}).get(PAST) is False
        if keyed is None or past:
            return ()
        try:
            args = [*(object() for _ in range(before)), *(signature.get("args") or ())]
            return keyed.keys_of({**signature, "args": args})
        except Exception:  # a function of the arguments is called, too
            return None

    def check(self) -> None:
        """Read the options of all tasks. Raises SettingsError, which names every fault."""
        wrong = []
        for task in list(self._app._tasks.values()):
            try:
                self.of(task)
            except SettingsError as error:
                wrong.append(str(error))
        if wrong:
            raise SettingsError("; ".join(wrong))

    def _check_rest(self, options: Sending) -> None:
        """Check the arguments of the keyed tasks behind a call, in its chain and its chord."""
        if chain := options.get("chain"):
            options["chain"] = [in_canvas(step, 1, self.checked_arguments) for step in chain]
        if chord := options.get("chord"):
            options["chord"] = in_canvas(chord, 1, self.checked_arguments)

    def checked_arguments(self, signature: Signature, before: int) -> Signature | None:
        """The call of a keyed task with its arguments checked, models as dicts; None for any other task."""
        task = self._app._tasks.get(signature["task"])
        if task is None or self.of(task) is None:
            return None
        return checked_call(task, signature, before)

    def _through_lane(
        self, send: Callable[..., AsyncResult], name: str, keyed: KeyedTask, options: Sending
    ) -> AsyncResult:
        callers_producer = options.pop("producer", None) or options.pop("publisher", None)
        connection = options.pop("connection", None)
        own = options.get("task_id") is not None
        result_class: Callable[[str], AsyncResult] = options.pop("result_cls", None) or self._app.AsyncResult
        producer = LaneProducer(self._app, self.submit, keyed, own, callers_producer, connection)

        def result(task_id: str) -> AsyncResult:
            return result_class(producer.result_id(task_id))

        producer.reprs = cast(
            Message, {name: options[name] for name in ("argsrepr", "kwargsrepr") if options.get(name)}
        )
        try:
            with producer, leave_alone(self._app, LaneProducer):
                return send(name, **options, producer=producer, result_cls=result)
        except StoreUnavailable as error:
            if isinstance(error, LaneUnavailable):
                raise
            raise LaneUnavailable(str(error), options.get("task_id")) from error


def _usual(app: Celery, name: str) -> Callable[..., object]:
    """The app's own method, looked up in its class at each call: an SDK that traces tasks may wrap it later."""
    own: Callable[..., object] | None = vars(app).get(name)
    return own or (lambda *args, **options: getattr(type(app), name)(app, *args, **options))


def own_keys(
    keyed_tasks: KeyedTasks | None, unchecked: Mapping[str, object], options: SubmitOptions
) -> tuple[Sequence[str], SubmitOptions]:
    """The keys of a submit that names none, from the task's own option, and the options; the submit's own win."""
    signature, _ = check_signature(unchecked)
    keyed = keyed_tasks.named(signature["task"]) if keyed_tasks else None
    if keyed_tasks is None or keyed is None:
        raise InvalidJob(f"{signature['task']}: name a key; the task has no option `coordinate` of its own")
    signature = keyed_tasks.checked_arguments(signature, 0) or signature
    return keyed.keys_of(signature), {**keyed.options_of(signature), **options}
