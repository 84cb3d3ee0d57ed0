"""Adds to a submitted signature what Celery's publish of a call would add: headers of SDKs, and changes by base
classes.

A base class of the task may override `apply_async`, and handlers of the signal `before_task_publish` may change the
message. Only where there is one of them, or the signature has stamps, Celery is made to build the message, since that
takes as long as the submit itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Unpack, cast

from celery import Celery, signals
from celery.app.task import Task

from coordinator.core.jobs.arguments import checked_call, in_canvas
from coordinator.core.jobs.chain import inner
from coordinator.core.jobs.request import check_signature
from coordinator.core.jobs.spec import TRACE, Message, Signature, SignatureOptions
from coordinator.core.jobs.submission import Submission
from coordinator.core.keyed_task.lane_producer import LaneProducer, Sent
from coordinator.core.keyed_task.message import Headers, ReceivedCall
from coordinator.errors import InvalidJob

_CANVAS = ("celery.chain", "celery.group", "celery.chord")


class _MessageKeeper(LaneProducer):
    """A producer that keeps the one message of a call in `received`, and neither publishes nor submits it."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app, None, None, own=True)  # type: ignore[arg-type]
        self.received: ReceivedCall | None = None

    def publish(self, body: object, *, headers: Headers, **options: Unpack[Sent]) -> object:
        if self.received is not None and "task" in headers:  # a second call; events have no header `task`
            raise InvalidJob(
                f"{headers['task']}: the apply_async of its base class makes several calls, but a submit is one job: "
                "call the task by apply_async or delay"
            )
        return super().publish(body, headers=headers, **options)

    def submit(self, received: ReceivedCall) -> Submission:
        self.received = received
        return Submission(str(received.signature["options"]["task_id"]), "queued", 0)


def published(app: Celery, unchecked: Mapping[str, object], job_id: str | None) -> tuple[Mapping[str, object], Message]:
    """Return the signature with the arguments, headers and queue that its message would have, and the stamps of the
    message. In a canvas, the tasks get only the headers. Returns the signature unchanged where nothing would be added.

    `unchecked`: the signature that the caller passed. `job_id`: the option of the submit, None = a new id.
    """
    name = str(unchecked.get("task")) if isinstance(unchecked, Mapping) else ""
    if name in _CANVAS:
        made = in_canvas(cast(Signature, unchecked), 0, partial(_with_headers, app))
        return _traced(made) if name == _CANVAS[0] else made, {}
    task = None if name.startswith("celery.") else app._tasks.get(name)
    options = dict(cast(Signature, unchecked).get("options") or {}) if task is not None else {}
    names = cast(list[str], options.pop("stamped_headers", None) or [])
    if task is None or not (names or _is_hooked(task)):
        return unchecked, {}
    stamps = {stamp: options.pop(stamp) for stamp in {*names} & options.keys()}
    signature, own = check_signature({**unchecked, "options": options})
    more = {**stamps, "stamped_headers": names} if names else {}
    received = _received(app, task, signature, 0, {"task_id": job_id, **own, **more})
    if received is None:
        return unchecked, {}
    made, message = received
    more = {option: value for option, value in made["options"].items() if option in ("headers", "queue", "task_id")}
    kept = {field: value for field, value in message.items() if field in ("stamps", "stamped_headers")}
    return {**signature, "options": cast(SignatureOptions, {**own, **more})}, cast(Message, kept)


def _received(
    app: Celery, task: Task, signature: Signature, before: int, options: Mapping[str, object]
) -> ReceivedCall | None:
    """Let Celery build the message of a call, and return it; None if the task's `apply_async` publishes none. `before`:
    how many results of earlier tasks the call will get in front of its arguments.
    """
    called = checked_call(task, signature, before)
    with _MessageKeeper(app) as reader:  # ignore_result: Celery does not prepare the backend
        task.apply_async(
            [*(None,) * before, *called["args"]], called["kwargs"],
            **{**options, "producer": reader, "coordinate": False, "ignore_result": True},
        )  # fmt: skip
    return reader.received


def _with_headers(app: Celery, part: Signature, before: int) -> Signature | None:
    task = app._tasks.get(part["task"])
    if task is None or not _is_hooked(task):
        return None
    options = part.get("options") or {}
    received = _received(app, task, part, before, {"headers": dict(options.get("headers") or {})})
    headers = received.signature["options"].get("headers") if received else None
    return cast(Signature, {**part, "options": {**options, "headers": headers}}) if headers else None


def _traced(chain: Signature) -> Signature:
    """Return the chain with the tracing headers of its first step among the chain's own options, so that its rollback
    belongs to the same trace.
    """
    options, first = chain.get("options") or {}, next(inner(chain), chain)
    headers = (first.get("options") or {}).get("headers") or {}
    trace = {name: headers[name] for name in TRACE if name in headers}
    made = {**chain, "options": {**options, "headers": {**trace, **(options.get("headers") or {})}}}
    return cast(Signature, made) if trace else chain


def _is_hooked(task: Task) -> bool:
    if type(task).apply_async is not Task.apply_async:
        return True
    return any(not str(key[0]).startswith("coordinator-") for key, _ in signals.before_task_publish.receivers or ())
