"""A task message of Celery's protocol 2, read as the submit of a job.

Celery makes the message of a keyed task as it makes any other. The job carries what the message would have carried: the
task, its arguments and options, its place in a canvas, and the headers of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from celery.app.task import Context

from coordinator.errors import InvalidJob
from coordinator.jobs.spec import CHILD, Message, Signature, SignatureOptions
from coordinator.jobs.validation import OwnId, is_reserved

PAST = "coordinate"  # a header: False in a message that goes past the lane on purpose

_OF_CELERY = {*vars(Context), "lang", "task", "argsrepr", "kwargsrepr", "compression", "content_type", PAST, CHILD}
_USUAL: tuple[object, ...] = (None, "", 0, [], {})


class Received(NamedTuple):
    """The submit that a message stands for."""

    signature: Signature
    message: Message


def read(
    headers: Mapping[str, Any], properties: Mapping[str, Any], body: object, queue: str, priority: int | None
) -> Received:
    """`priority`: greater goes first. Raises InvalidJob for a message of another protocol."""
    if not isinstance(body, list | tuple) or len(body) != 3:
        raise InvalidJob(f"{headers.get('task')}: a keyed task needs messages of protocol 2 (task_protocol)")
    args, kwargs, embed = body
    task_id = str(headers["id"])
    if is_reserved(task_id):  # a tick's: callers cannot take such an id, and beats may
        task_id = headers["id"] if isinstance(headers["id"], OwnId) else OwnId(task_id)
    hard, soft = headers.get("timelimit") or (None, None)
    options: dict[str, Any] = {
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
        "ignore_result": headers.get("ignore_result") or None,
    }
    signature: Signature = {
        "task": headers["task"],
        "args": list(args),
        "kwargs": dict(kwargs),
        "options": cast(SignatureOptions, {name: value for name, value in options.items() if value is not None}),
    }
    return Received(signature, _message(headers, properties, embed))


def _of_users(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Those of users, and those under `headers`: SDKs that trace tasks put theirs there, too."""
    own = {name: value for name, value in headers.items() if name not in _OF_CELERY}
    return own | dict(headers.get("headers") or {})


def _message(headers: Mapping[str, Any], properties: Mapping[str, Any], embed: Mapping[str, Any]) -> Message:
    """Without what is usual, since each job keeps it."""
    own = headers["id"]
    found = {
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
    }
    message = {name: value for name, value in found.items() if value not in _USUAL}
    if headers.get("group_index") is not None:
        message["group_index"] = headers["group_index"]
    return cast(Message, message)
