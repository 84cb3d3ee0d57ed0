"""Reads what Celery would publish for a signature that is submitted: SDKs and base classes add headers on that way.

A base class may have an `apply_async` of its own, and handlers of `before_task_publish` change the message. Celery
makes the message only where a task has either, or the signature is stamped: it costs as much as the submit itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Unpack, cast

from celery import Celery, signals
from celery.app.task import Task

from coordinator.errors import InvalidJob
from coordinator.jobs.arguments import checked_call, in_canvas
from coordinator.jobs.chain import inner
from coordinator.jobs.request import check_signature
from coordinator.jobs.spec import TRACE, Message, Signature, SignatureOptions
from coordinator.jobs.submission import Submission
from coordinator.keyed_task.lane_producer import LaneProducer, Sent
from coordinator.keyed_task.message import Headers, ReceivedCall

_CANVAS = ("celery.chain", "celery.group", "celery.chord")


class _MessageKeeper(LaneProducer):
    """Keeps the message of a call instead of submitting it."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app, None, None, own=True)  # type: ignore[arg-type]
        self.received: ReceivedCall | None = None

    def publish(self, body: object, *, headers: Headers, **options: Unpack[Sent]) -> object:
        if self.received is not None and "task" in headers:  # events have none
            raise InvalidJob(
                f"{headers['task']}: the apply_async of its base class makes several calls, and a submit is one job: "
                "call it by apply_async or delay"
            )
        return super().publish(body, headers=headers, **options)

    def submit(self, received: ReceivedCall) -> Submission:
        self.received = received
        return Submission(str(received.signature["options"]["task_id"]), "queued", 0)


def published(app: Celery, unchecked: Mapping[str, object], job_id: str | None) -> tuple[Mapping[str, object], Message]:
    """The signature with the arguments, headers and queue that its message would have, and its stamps. The tasks of a
    canvas get the headers only.
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
    """The message of a call that gets `before` more arguments in front; None: its `apply_async` publishes none."""
    called = checked_call(task, signature, before)
    with _MessageKeeper(app) as reader:  # who ignores the result asks no backend
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
    """The chain with the headers of tracing of its first step: they count for its rollback, too."""
    options, first = chain.get("options") or {}, next(inner(chain), chain)
    headers = (first.get("options") or {}).get("headers") or {}
    trace = {name: headers[name] for name in TRACE if name in headers}
    made = {**chain, "options": {**options, "headers": {**trace, **(options.get("headers") or {})}}}
    return cast(Signature, made) if trace else chain


def _is_hooked(task: Task) -> bool:
    if type(task).apply_async is not Task.apply_async:
        return True
    return any(not str(key[0]).startswith("coordinator-") for key, _ in signals.before_task_publish.receivers or ())
