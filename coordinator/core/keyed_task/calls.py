"""Turns calls of keyed tasks into jobs.

    delay, apply_async, canvas, links, beats ─► Task.apply_async ─► app.send_task ─► a producer
                                                                    ours             ours, where the task is keyed

Celery itself checks the arguments, merges the options, chooses the queue, makes the message and sends signals and
events. The library replaces only the producer, which would publish the message: it submits the call as a job. So all
that Celery knows of a call goes into the job, and an `apply_async` that a base class of the task overrides is still
called.
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

from coordinator.core.celery_patches.declared import undo
from coordinator.core.celery_patches.result_backend import leave_alone
from coordinator.core.jobs.arguments import checked_call, in_canvas
from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.request import KeyedCall, RequestMaker, check_signature
from coordinator.core.jobs.spec import Message, Signature
from coordinator.core.jobs.submission import Submission
from coordinator.core.jobs.validation import OwnId
from coordinator.core.keyed_task.coordinate import KeyedTask, read
from coordinator.core.keyed_task.lane_producer import LaneProducer, LaneUnavailable
from coordinator.core.keyed_task.listed import adopt, adopt_all
from coordinator.core.keyed_task.message import PAST
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from coordinator.errors import InvalidJob, SettingsError, StoreUnavailable

_NOT_OURS = ("celery.", "coordinator.")


class LaneHost(Protocol):
    """The attributes of a Coordinator that are needed to submit a call."""

    @property
    def _core(self) -> LaneClient: ...

    @property
    def _requests(self) -> RequestMaker: ...

    @property
    def settings(self) -> Settings: ...

    def _check_open(self) -> None: ...


class Sending(TypedDict, total=False):
    """Those options of `app.send_task` that this module reads."""

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
    """Finds the keyed tasks of one app and submits their calls; `install` wraps the app's methods for that."""

    def __init__(self, app: Celery, host: LaneHost) -> None:
        self._app = app
        self._host = host
        self._known: dict[str, tuple[Task, KeyedTask | None]] = {}

    def install(self) -> None:
        """Wrap `send_task` and `finalize` of the app: calls of keyed tasks are then submitted, and the options of all
        tasks are checked when the app is finalized. Tasks whose calls become one list take any arguments, from when
        they are made. To be called once: a second wrapper would submit each call twice.
        """
        app = self._app
        send: Callable[..., AsyncResult] = _usual(app, "send_task")
        finalize = _usual(app, "finalize")
        names = list(inspect.signature(app.send_task).parameters)[:-1]

        def send_task(name: str, *args: object, coordinate: object = None, **named: object) -> AsyncResult:
            options = cast(Sending, named | dict(zip(names[1:], args, strict=False)))
            tick = options.get("task_id")
            if isinstance(tick, OwnId):  # the `apply_async` of a base class may make several calls of one tick
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
                raise SettingsError(f"{name}: a call takes coordinate=False or no such option, not {coordinate!r}")
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
        adopt_all(app, {way: _usual(app, way) for way in ("_task_from_fun", "register_task")})

    def submit(self, keys: Sequence[str], signature: Signature, options: SubmitOptions, call: KeyedCall) -> Submission:
        """Submit a call of a keyed task as a job under `keys`."""
        self._host._check_open()
        return self._host._core.submit(self._host._requests.make(keys, signature, options, call))

    def of(self, task: Task) -> KeyedTask | None:
        """The option `coordinate` of a task, read and checked once; None for a task without the option. Tasks of Celery
        and of the coordinator never have it, also where `task_annotations` set it for all tasks. Raises SettingsError
        where the option is wrong.
        """
        if task.name.startswith(_NOT_OURS):
            return None
        known = self._known.get(task.name)
        if known is None or known[0] is not task:
            adopt(self._app, task)
            known = self._known[task.name] = task, read(task)
        return known[1]

    def named(self, name: str) -> KeyedTask | None:
        """The option `coordinate` of the task of this name; None where the app lacks the task, or the task has no
        option.
        """
        if name not in self._app.tasks:
            with suppress(ImportError):
                self._app.loader.import_default_modules()
        task = self._app.tasks.get(name)
        return None if task is None else self.of(task)

    def lanes_of(self, signature: Signature, before: int) -> tuple[str, ...] | None:
        """The keys of the lanes that a call in a canvas will need: () if the task is not keyed or is called with
        `coordinate=False`, None if a key cannot be made yet, since it depends on a result.

        `before`: how many results of earlier tasks the call will get in front of its arguments.
        """
        keyed, options = self.named(signature["task"]), cast(Sending, signature.get("options") or {})
        past = options.get("coordinate") is False or (options.get("headers") or {}).get(PAST) is False
        if keyed is None or past:
            return ()
        try:
            args = [*(object() for _ in range(before)), *(signature.get("args") or ())]
            return keyed.keys_of({**signature, "args": args})
        except Exception:  # also what the key function of the task raises
            return None

    def check(self) -> None:
        """Check the option `coordinate` of all tasks of the app. Raises one SettingsError with all faults."""
        wrong = []
        for task in list(self._app._tasks.values()):
            try:
                self.of(task)
            except SettingsError as error:
                wrong.append(str(error))
        if wrong:
            raise SettingsError("; ".join(wrong))

    def _check_rest(self, options: Sending) -> None:
        """Check the arguments of those keyed tasks that follow a call in its chain or chord. Raises InvalidJob."""
        if chain := options.get("chain"):
            options["chain"] = [in_canvas(step, 1, self.checked_arguments) for step in chain]
        if chord := options.get("chord"):
            options["chord"] = in_canvas(chord, 1, self.checked_arguments)

    def checked_arguments(self, signature: Signature, before: int) -> Signature | None:
        """Check the arguments of a call, and return the call with pydantic models as dicts; None if the task is not
        keyed. `before`: how many results of earlier tasks it will get in front of them. Raises InvalidJob.
        """
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
    """Return a function that calls the method `name` of the app as if this module had not replaced it. The method is
    looked up in the class of the app at each call, since an SDK that traces tasks may wrap it later.
    """
    own: Callable[..., object] | None = vars(app).get(name)
    return own or (lambda *args, **options: getattr(type(app), name)(app, *args, **options))


class _Later:
    """Stands for an argument that a job gets from its cause, of which no key can be made at the submit."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __format__(self, _: str) -> str:
        raise InvalidJob(f"the key is made of {self._name!r}, which a cause hands on later: name a key")

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__


def own_keys(
    keyed_tasks: KeyedTasks | None, unchecked: Mapping[str, object], options: SubmitOptions
) -> tuple[Sequence[str], SubmitOptions]:
    """Return the keys of a submit that names no key, made by the option `coordinate` of its task, and the submit's
    options, merged over those in `coordinate`. Raises InvalidJob where the task has no such option.
    """
    signature, _ = check_signature(unchecked)
    keyed = keyed_tasks.named(signature["task"]) if keyed_tasks else None
    if keyed is None and options.get("uses") is not None:
        return (), options
    if keyed_tasks is None or keyed is None:
        raise InvalidJob(f"{signature['task']}: name a key; the task has no option `coordinate` of its own")
    if isinstance(after := options.get("after"), Mapping):
        later = {str(name): _Later(str(name)) for name in after}
        signature = cast(Signature, {**signature, "kwargs": {**later, **(signature.get("kwargs") or {})}})
    signature = keyed_tasks.checked_arguments(signature, 0) or signature
    return keyed.keys_of(signature), {**keyed.options_of(signature), **options}
