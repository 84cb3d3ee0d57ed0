"""Reads what Celery would publish for a signature that is submitted: SDKs and base classes add headers on that way.

A base class may have an `apply_async` of its own, and handlers of `before_task_publish` change the message. Celery
makes the message only where a task has either, or the signature is stamped: it costs as much as the submit itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from celery import Celery, signals
from celery.app.task import Task

from coordinator.jobs.arguments import checked
from coordinator.jobs.request import check_signature
from coordinator.jobs.spec import TRACE, Message, Signature, SignatureOptions
from coordinator.jobs.submission import Submission
from coordinator.keyed_task.lane_producer import LaneProducer
from coordinator.keyed_task.message import ReceivedCall


class _MessageKeeper(LaneProducer):
    """Keeps the message of a call instead of submitting it."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app, None, None, own=True)  # type: ignore[arg-type]
        self.received: ReceivedCall | None = None

    def submit(self, received: ReceivedCall) -> Submission:
        self.received = received
        return Submission(str(received.signature["options"]["task_id"]), "queued", 0)


def published(app: Celery, unchecked: Mapping[str, object], job_id: str | None) -> tuple[Mapping[str, object], Message]:
    """The signature with the arguments, headers and queue that its message would have, and its stamps."""
    name = str(unchecked.get("task")) if isinstance(unchecked, Mapping) else ""
    if name == "celery.chain":
        return _traced(app, unchecked, job_id), {}
    task = None if name.startswith("celery.") else app._tasks.get(name)
    options = dict(cast(Signature, unchecked).get("options") or {}) if task is not None else {}
    names = cast(list[str], options.pop("stamped_headers", None) or [])
    if task is None or not (names or _is_hooked(task)):
        return unchecked, {}
    stamps = {stamp: options.pop(stamp) for stamp in {*names} & options.keys()}
    signature, own = check_signature({**unchecked, "options": options})
    with _MessageKeeper(app) as reader:
        call = {**own, **stamps, "producer": reader, "coordinate": False}
        if names:
            call["stamped_headers"] = names
        args, kwargs = checked(task, (list(signature.get("args") or ()), dict(signature.get("kwargs") or {})), 0)
        task.apply_async(args, kwargs, **{"task_id": job_id, **call, "ignore_result": True})  # asks no backend
    if reader.received is None:  # an `apply_async` that publishes nothing
        return unchecked, {}
    signature, message = reader.received
    more = {
        option: value for option, value in signature["options"].items() if option in ("headers", "queue", "task_id")
    }
    kept = {field: value for field, value in message.items() if field in ("stamps", "stamped_headers")}
    return {**signature, "options": cast(SignatureOptions, {**own, **more})}, cast(Message, kept)


def _traced(app: Celery, chain: Mapping[str, object], job_id: str | None) -> Mapping[str, object]:
    """The chain, with the headers of tracing that its first message would have: they count for each of its steps."""
    kwargs = chain.get("kwargs")
    tasks = kwargs.get("tasks") if isinstance(kwargs, Mapping) else None
    first = tasks[0] if isinstance(tasks, list | tuple) and tasks else None
    if not isinstance(first, Mapping):
        return chain
    signature, _ = published(app, {name: first[name] for name in ("task", "args", "kwargs") if name in first}, job_id)
    headers = cast(Signature, signature).get("options", {}).get("headers") or {}
    options: SignatureOptions = cast(Signature, chain).get("options") or {}
    trace = {name: headers[name] for name in TRACE if name in headers}
    if not trace:
        return chain
    return {**chain, "options": {**options, "headers": {**trace, **(options.get("headers") or {})}}}


def _is_hooked(task: Task) -> bool:
    if type(task).apply_async is not Task.apply_async:
        return True
    return any(not str(key[0]).startswith("coordinator-") for key, _ in signals.before_task_publish.receivers or ())
