"""Converts a task message of Celery's protocol 2 into the submit of a job.

Celery makes the message of a keyed task as it makes any other. The job takes over what the message would have carried:
the task, its arguments and options, the place of the call in a canvas, and headers that users have added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Required, TypedDict, cast

from celery import VERSION
from celery.app.task import Context

from coordinator.core.jobs.spec import ATTEMPT, CHILD, Message, Signature, SignatureOptions
from coordinator.core.jobs.validation import OwnId, is_reserved
from coordinator.errors import InvalidJob

PAST = "coordinate"  # header of a message that was sent with `coordinate=False`: its value is False

_OURS = {PAST, CHILD, ATTEMPT}
_OF_CELERY = {*vars(Context), "lang", "task", "argsrepr", "kwargsrepr", "compression", "content_type", *_OURS}
_USUAL: tuple[object, ...] = (None, "", 0, [], {})
# Values of the header `ignore_result` that leave the decision to the task.
_SAYS_NOTHING = {None} if VERSION[:2] >= (5, 6) else {None, False}


class Headers(TypedDict, total=False):
    """Those headers of Celery's protocol 2 that this module reads. Headers of users are in the same dict."""

    id: Required[str]
    task: Required[str]
    timelimit: Sequence[float | None] | None
    eta: str | None
    expires: str | None
    headers: dict[str, object] | None
    shadow: str | None
    ignore_result: bool | None
    group: str | None
    group_index: int | None
    root_id: str | None
    parent_id: str | None
    origin: str | None
    stamped_headers: list[str] | None
    stamps: dict[str, object] | None
    replaced_task_nesting: int
    retries: int | None
    coordinator_parent: str | None


class MessageProperties(TypedDict, total=False):
    """Those properties of a message that this module reads."""

    priority: int | None
    reply_to: str | None


class Embed(TypedDict, total=False):
    """The third part of the body of a message: the links and tasks that follow on the task."""

    callbacks: list[Signature] | None
    errbacks: list[Signature] | None
    chain: list[Signature] | None
    chord: Signature | None


Body = tuple[Sequence[object], Mapping[str, object], Embed]


class ReceivedCall(NamedTuple):
    """A message as the submit of a job: `signature` with its options, and in `message` all else that the job keeps."""

    signature: Signature
    message: Message


def read(
    headers: Headers, properties: MessageProperties, body: object, queue: str, priority: int | None
) -> ReceivedCall:
    """Convert a message. `body`: decoded. `queue`: the name of its queue. `priority`: a greater one goes first, None =
    not set; the caller has converted it from the meaning that the broker gives it. Raises InvalidJob for a message of
    protocol 1.
    """
    if not isinstance(body, list | tuple) or len(body) != 3:
        raise InvalidJob(f"{headers.get('task')}: a keyed task needs messages of protocol 2 (task_protocol)")
    args, kwargs, embed = cast(Body, body)
    task_id = str(headers["id"])
    if is_reserved(task_id):  # the id of a tick, which a call may have only if a beat made it
        task_id = headers["id"] if isinstance(headers["id"], OwnId) else OwnId(task_id)
    hard, soft = headers.get("timelimit") or (None, None)
    options: dict[str, object] = {
        "queue": queue,
        "task_id": task_id,
        "eta": headers.get("eta"),
        "expires": headers.get("expires"),
        "time_limit": hard,
        "soft_time_limit": soft,
        "link": embed.get("callbacks") or None,
        "link_error": embed.get("errbacks") or None,
        "headers": _of_users(headers) or None,
        "shadow": headers.get("shadow"),
        "priority": priority,
        "ignore_result": None if (ignored := headers.get("ignore_result")) in _SAYS_NOTHING else ignored,
    }
    signature: Signature = {
        "task": headers["task"],
        "args": list(args),
        "kwargs": dict(kwargs),
        "options": cast(SignatureOptions, {name: value for name, value in options.items() if value is not None}),
    }
    return ReceivedCall(signature, _message(headers, properties, embed))


def _of_users(headers: Headers) -> dict[str, object]:
    """The headers that users added, and those in the header `headers`, where SDKs that trace tasks also put theirs."""
    own = {name: value for name, value in headers.items() if name not in _OF_CELERY}
    return own | dict(headers.get("headers") or {})


def _message(headers: Headers, properties: MessageProperties, embed: Embed) -> Message:
    """The other headers and properties of a message that a job keeps, without those that have the default value, to
    keep records small.
    """
    own = headers["id"]
    fields = {
        "chain": embed.get("chain"),
        "chord": embed.get("chord"),
        "group": headers.get("group"),
        "root_id": headers.get("root_id") if headers.get("root_id") != own else None,
        "parent_id": headers.get("parent_id"),
        "reply_to": properties.get("reply_to"),
        "origin": headers.get("origin"),
        "stamped_headers": headers.get("stamped_headers"),
        "stamps": headers.get("stamps"),
        "replaced_task_nesting": headers.get("replaced_task_nesting"),
        "retries": headers.get("retries"),
        "child_of": headers.get(CHILD),
        "eta": headers.get("eta"),
        "expires": headers.get("expires"),
        "priority": properties.get("priority"),
    }
    message = {name: value for name, value in fields.items() if value not in _USUAL}
    if headers.get("group_index") is not None:
        message["group_index"] = headers["group_index"]
    return cast(Message, message)
