"""Parses a message of a request queue: a plain JSON object, one in kombu's envelope, or a Celery task message.

kombu itself is not used, since it decodes any content type that the sender names (pickle, compression). A Celery task
message comes from `send_task(<queue>, kwargs={…})`, in message protocol 2. If it has options that have no effect on a
request, such as `eta` or `link`, it is refused, and the reason names them.
"""

from __future__ import annotations

import base64
import json
from typing import cast

from coordinator.core.store.values import Json

MOST = 16 * 1024  # bytes of the longest message that is accepted

_TEXTS = ("argsrepr", "kwargsrepr")
_NOT_HONOURED = ("eta", "expires", "callbacks", "errbacks", "chain", "chord", "taskset", "group")


def read(message: bytes, queue: str, size: int) -> tuple[dict[str, Json], Json]:
    """Parse a message of the request queue `queue`. `size`: the bytes of the message before it was cut.

    Returns the JSON object of the request, and the task id if it is a Celery task message, else None. Raises ValueError
    with the reason, for the sender.
    """
    if size > MOST:
        raise ValueError(f"the message has {size} bytes; at most {MOST} are accepted")
    data = _object(_json(message), "the message")
    if not {"body", "properties"} <= data.keys():
        return data, None
    headers = _object(data.get("headers") or {}, "headers")
    body = _json(_body(data, headers))
    if "task" not in headers:
        return _object(body, "the body"), None
    if headers["task"] != queue:
        raise ValueError(f"a message of the task {headers['task']!r}: this inbox takes only {queue!r}")
    if not isinstance(body, list) or len(body) != 3:
        raise ValueError("the body of a task message must be [args, kwargs, options]")
    if body[0]:
        raise ValueError("the message has positional arguments: give them by name")
    options = headers | _object(body[2] or {}, "options")
    if wrong := [name for name in _NOT_HONOURED if options.get(name)]:
        raise ValueError(f"a request cannot honour {', '.join(wrong)}: leave these options out")
    return _object(body[1] or {}, "kwargs"), headers.get("id")


def opened(message: bytes) -> Json:
    """Unpack a message for display to operators: plain JSON as it is, or the body and headers in kombu's envelope,
    without Celery's `argsrepr` and `kwargsrepr`. A body that cannot be decoded is shown as None. Raises ValueError for
    a message that is not JSON.
    """
    data = _json(message)
    if not isinstance(data, dict) or not {"body", "properties"} <= data.keys():
        return data
    sent, headers = data.get("headers"), dict[str, Json]()
    if isinstance(sent, dict):
        headers = {name: value for name, value in sent.items() if value and name not in _TEXTS}
    try:
        body = _json(_body(data, headers))
    except ValueError:
        return {"body": None, "headers": headers}
    if isinstance(headers.get("task"), str) and isinstance(body, list) and len(body) == 3:
        body = {"task": headers["task"], **dict(zip(("args", "kwargs", "options"), body, strict=True))}
    return {"body": body, "headers": headers} if headers else body


def _json(text: bytes) -> Json:
    try:
        return cast(Json, json.loads(text.decode()))
    except UnicodeDecodeError:
        raise ValueError("not JSON: not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _object(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, not {type(value).__name__}")
    return value


def _body(data: dict[str, Json], headers: dict[str, Json]) -> bytes:
    kind, body = data.get("content-type"), data["body"]
    if not isinstance(kind, str) or kind.partition(";")[0].strip().lower() != "application/json":
        raise ValueError(f"content-type {kind!r}: the inbox reads only application/json")
    if headers.get("compression"):
        raise ValueError("the body is compressed: the inbox reads only plain JSON")
    if not isinstance(body, str):
        raise ValueError(f"the body must be a string, not {type(body).__name__}")
    if _object(data["properties"], "properties").get("body_encoding") != "base64":
        return body.encode(errors="surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise ValueError(f"the body is not base64: {error}") from None
