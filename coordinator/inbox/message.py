"""Reads a message of a request queue: a plain JSON object, kombu's envelope around one, or a Celery task message.

This module reads the bytes without kombu, since kombu decodes whatever the sender names (a pickle, a compression) and
trusts the shape. A task message comes from `send_task(<queue>, kwargs={…})`, in protocol 1 or 2. If it asks for more
than that, it is refused, and the reason names the option.
"""

from __future__ import annotations

import base64
import json
from typing import cast

from coordinator.store.values import Json

MOST = 16 * 1024  # bytes of a message

_NOT_HONOURED = ("eta", "expires", "callbacks", "errbacks", "chain", "chord", "taskset", "group")


def read(message: bytes, queue: str, size: int) -> tuple[dict[str, Json], Json]:
    """The object in the message, and the task message's id (None: it is no task message). `size`: before it was cut.

    Raises ValueError, whose text says what is wrong.
    """
    if size > MOST:
        raise ValueError(f"the message has {size} bytes; the inbox takes at most {MOST}")
    data = _object(_json(message), "the message")
    if not {"body", "properties"} <= data.keys():
        return _plain(data, queue)
    headers = _object(data.get("headers") or {}, "headers")
    inner = _json(_body(data, headers))
    if "task" in headers:
        if not isinstance(inner, list) or len(inner) != 3:
            raise ValueError("the body of a task message is [args, kwargs, options]")
        return _kwargs(headers | _object(inner[2] or {}, "options"), inner[0], inner[1], queue), headers.get("id")
    return _plain(_object(inner, "the body"), queue)


def _plain(found: dict[str, Json], queue: str) -> tuple[dict[str, Json], Json]:
    """Protocol 1 has all of a task message in its body, and no header that says so."""
    if {"task", "args", "kwargs"} <= found.keys():
        return _kwargs(found, found["args"], found["kwargs"], queue), found.get("id")
    return found, None


def _json(text: bytes) -> Json:
    try:
        return cast(Json, json.loads(text.decode()))
    except UnicodeDecodeError:
        raise ValueError("not JSON: not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _object(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: a JSON object, not {type(value).__name__}")
    return value


def _body(data: dict[str, Json], headers: dict[str, Json]) -> bytes:
    kind, body = data.get("content-type"), data["body"]
    if not isinstance(kind, str) or kind.partition(";")[0].strip().lower() != "application/json":
        raise ValueError(f"content-type {kind!r}: the inbox reads only application/json")
    if headers.get("compression"):
        raise ValueError("the body is compressed: the inbox reads only plain JSON")
    if not isinstance(body, str):
        raise ValueError(f"the body is a text, not {type(body).__name__}")
    if _object(data["properties"], "properties").get("body_encoding") != "base64":
        return body.encode(errors="surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise ValueError(f"the body is not base64: {error}") from None


def _kwargs(about: dict[str, Json], args: Json, kwargs: Json, queue: str) -> dict[str, Json]:
    if about["task"] != queue:
        raise ValueError(f"a message of the task {about['task']!r}: this inbox takes only {queue!r}")
    if args:
        raise ValueError("the message has positional arguments: give them by name")
    if wrong := [name for name in _NOT_HONOURED if about.get(name)]:
        raise ValueError(f"a request cannot honour {', '.join(wrong)}")
    return _object(kwargs or {}, "kwargs")
