"""Commands and replies as they go over the wire."""

from __future__ import annotations

from typing import Any, cast

import redis
from hiredis import pack_command

from coordinator.errors import InvalidJob

Arg = str | bytes | int | float


def pack(*parts: Arg) -> bytes:
    """One command. Raises InvalidJob, which names a text that UTF-8 cannot say."""
    try:
        return cast(bytes, pack_command(parts))  # type: ignore[arg-type]  # its stub knows commands of one part
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def unwritable(error: UnicodeEncodeError) -> InvalidJob:
    """It may be a key, an id, a reason, the name of a node: the error names its beginning."""
    given = repr(error.object)
    return InvalidJob(f"{given[:100]}{'…' if len(given) > 100 else ''} is no text that Redis can keep: {error.reason}")


def reply_or_error(connection: redis.Connection) -> Any:
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error
