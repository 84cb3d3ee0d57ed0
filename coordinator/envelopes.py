"""What somebody put on a request queue: a plain JSON object, kombu's envelope around one, or a Celery task message.

Read without kombu, which would decode what the sender names (a pickle, a compression) and trusts the shape. A task
message is one of `send_task(<queue>, kwargs={…})`, protocol 1 or 2; what it asks for beyond that is refused by name.
"""

from __future__ import annotations

import base64
import json
from typing import Any

MOST = 16 * 1024  # bytes of a message

_NOT_HONOURED = ("eta", "expires", "callbacks", "errbacks", "chain", "chord", "taskset", "group")


def read(message: bytes, queue: str) -> tuple[dict[str, Any], Any]:
    """The object in it, and the id of the task message (None: it was none). Raises ValueError, saying what is wrong."""
    if len(message) > MOST:
        raise ValueError(f"{len(message)} bytes; at most {MOST}")
    data = _object(_json(message), "the message")
    if not {"body", "properties"} <= data.keys():
        return data, None
    headers = _object(data.get("headers") or {}, "headers")
    inner = _json(_body(data, headers))
    if "task" in headers:
        if not isinstance(inner, list) or len(inner) != 3:
            raise ValueError("the body of a task message is [args, kwargs, options]")
        return _kwargs(headers | _object(inner[2] or {}, "options"), inner[0], inner[1], queue), headers.get("id")
    inner = _object(inner, "the body")
    if {"task", "args", "kwargs"} <= inner.keys():
        return _kwargs(inner, inner["args"], inner["kwargs"], queue), inner.get("id")
    return inner, None


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except UnicodeDecodeError:
        raise ValueError("not JSON: not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: a JSON object, not {type(value).__name__}")
    return value


def _body(data: dict[str, Any], headers: dict[str, Any]) -> bytes:
    kind, body = data.get("content-type"), data["body"]
    if not isinstance(kind, str) or kind.partition(";")[0].strip().lower() != "application/json":
        raise ValueError(f"content-type {kind!r}: only application/json is read")
    if headers.get("compression"):
        raise ValueError("the body is compressed: only plain JSON is read")
    if not isinstance(body, str):
        raise ValueError(f"the body is a text, not {type(body).__name__}")
    if _object(data["properties"], "properties").get("body_encoding") != "base64":
        return body.encode(errors="surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise ValueError(f"the body is not base64: {error}") from None


def _kwargs(about: dict[str, Any], args: Any, kwargs: Any, queue: str) -> dict[str, Any]:
    if about["task"] != queue:
        raise ValueError(f"a message of the task {about['task']!r}: here only {queue!r}")
    if args:
        raise ValueError("positional arguments: give them by name")
    if wrong := [name for name in _NOT_HONOURED if about.get(name)]:
        raise ValueError(f"a request cannot honour {', '.join(wrong)}")
    return _object(kwargs or {}, "kwargs")
