"""Commands and replies as they go over the wire."""

from __future__ import annotations

import os
import socket
import time
from typing import Protocol, cast

import redis
from hiredis import pack_command

from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable

Arg = str | bytes | int | float
_ANSWER = 65536  # bytes that are read at once


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


class Reader(Protocol):
    """The part of hiredis that reads replies."""

    def feed(self, data: bytes) -> None: ...


def reply_or_error(connection: redis.Connection) -> object:
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error


def exchange_awake(connection: redis.Connection, packed: bytes, patience: float) -> bool:
    """Send a command, and look for its answer for so many seconds without going to sleep. Then `read_response` has it,
    or waits on.

    False: nothing was sent, since this connection is none that could be used so. It is one on a plain socket, and with
    hiredis. redis-py polls before it sends and before it reads; its sockets do not block, so there is no need to.
    """
    plain, parser = getattr(connection, "_sock", None), getattr(connection, "_parser", None)
    reader: Reader | None = getattr(parser, "_reader", None)
    if type(plain) is not socket.socket or not plain.gettimeout() or reader is None or not hasattr(reader, "feed"):
        return False
    file, until = plain.fileno(), time.perf_counter() + patience
    try:
        sent = os.write(file, packed)
        if sent < len(packed):
            plain.sendall(packed[sent:])
        while time.perf_counter() < until:
            try:
                answer = os.read(file, _ANSWER)
            except BlockingIOError:
                os.sched_yield()
                continue
            if not answer:
                raise ConnectionResetError("it closed the connection")
            reader.feed(answer)
            break
    except OSError as error:
        raise redis.exceptions.ConnectionError(f"{type(error).__name__}: {error}") from error
    return True


# Errors, words in them, and what that means.
_ANSWERS = (
    (redis.exceptions.InvalidResponse, "", "a server answers there that is no Redis"),
    (redis.exceptions.AuthenticationError, "already authenticated", "it wants a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "required", "it wants a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "", "it does not take this user and password"),
)


def unavailable(where: str, error: Exception, job_id: str | None) -> StoreUnavailable:
    """The error of a call that the server at this address did not answer, or answered as no Redis of ours does."""
    for kind, words, text in _ANSWERS:
        if isinstance(error, kind) and words in str(error):
            found = StoreUnavailable(f"Redis at {where}: {text}", job_id)
            found.answered = True
            return found
    return StoreUnavailable(f"Redis at {where}: {error}", job_id)


# redis-py turns a known first word of an error into a class and takes it off the text.
_REFUSALS = (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
_REFUSING = ("OOM ", "READONLY", "MISCONF", "NOREPLICAS")
_FORBIDDEN = ("NOPERM", "ACL failure", "The user executing the script can't")


def refused(where: str, error: Exception, job_id: str | None) -> StoreRefused | None:
    """The error of a call that the server refused for a reason of its own; None where the call was wrong."""
    if isinstance(error, redis.exceptions.NoPermissionError) or any(word in str(error) for word in _FORBIDDEN):
        rules = "the page on operations names the rules of an ACL that it needs, Redis' ACL LOG the one that it lacks"
        return StoreRefused(f"Redis at {where} forbids that to this user: {error}; {rules}", job_id)
    if "DB index is out of range" in str(error):
        return StoreRefused(f"Redis at {where} has no database of this number", job_id)
    if isinstance(error, _REFUSALS) or any(word in str(error) for word in _REFUSING):
        full = isinstance(error, redis.exceptions.OutOfMemoryError)
        return StoreRefused(f"Redis at {where} refuses writes: {error}", job_id, full)
    return None
