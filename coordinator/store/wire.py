"""Packs commands, reads replies, and translates redis-py's errors into ours."""

from __future__ import annotations

from typing import cast

import redis
from hiredis import pack_command

from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.version import VERSION

Arg = str | bytes | int | float


def pack(*parts: Arg) -> bytes:
    """Pack one command. Raises InvalidJob, which names a text that UTF-8 cannot encode."""
    try:
        return cast(bytes, pack_command(parts))  # type: ignore[arg-type]  # its stub knows commands of one part
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def unwritable(error: UnicodeEncodeError) -> InvalidJob:
    """The error for a text that UTF-8 cannot encode (a key, an id, a reason …); it quotes the text's beginning."""
    text = repr(error.object)
    return InvalidJob(f"{text[:100]}{'…' if len(text) > 100 else ''} is no text that Redis can keep: {error.reason}")


def reply_or_error(connection: redis.Connection) -> object:
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error


# The type of an error, words in it, and what that means.
_ANSWERS = (
    (redis.exceptions.InvalidResponse, "", "a server answers there that is no Redis"),
    (redis.exceptions.AuthenticationError, "already authenticated", "it wants a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "required", "it wants a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "", "it does not take this user and password"),
)


def unavailable(where: str, error: Exception, job_id: str | None) -> StoreUnavailable:
    """The error of a call without an answer, or with one that no Redis of ours gives."""
    for kind, words, text in _ANSWERS:
        if isinstance(error, kind) and words in str(error):
            unusable = StoreUnavailable(f"Redis at {where}: {text}", job_id)
            unusable.answered = True
            return unusable
    return StoreUnavailable(f"Redis at {where}: {error}", job_id)


# redis-py turns a known first word of an error into a class, and removes it from the text. In redis-py 5 only its
# client of a cluster knows most of these.
_WORDS = {
    "ASK": redis.exceptions.AskError,
    "CLUSTERDOWN": redis.exceptions.ClusterDownError,
    "MASTERDOWN": redis.exceptions.MasterDownError,
    "MOVED": redis.exceptions.MovedError,
    "READONLY": redis.exceptions.ReadOnlyError,
    "TRYAGAIN": redis.exceptions.TryAgainError,
}


def says(error: Exception, *words: str) -> bool:
    """True for an error that began with one of these words when Redis sent it."""
    return isinstance(error, tuple(_WORDS[word] for word in words if word in _WORDS)) or str(error).startswith(words)


_REFUSALS = (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
_REFUSING = ("OOM ", "READONLY", "MISCONF", "NOREPLICAS")
_FORBIDDEN = ("NOPERM", "ACL failure", "The user executing the script can't")


def refused(where: str, error: Exception, job_id: str | None) -> StoreRefused | None:
    """The error of a call that the server's state or its ACL forbids; None where the call itself was wrong."""
    if isinstance(error, redis.exceptions.NoPermissionError) or any(word in str(error) for word in _FORBIDDEN):
        rules = "the page on operations names the rules of an ACL that it needs, Redis' ACL LOG the one that it lacks"
        return StoreRefused(f"Redis at {where} forbids that to this user: {error}; {rules}", job_id)
    if str(error).startswith("FORMAT "):
        text = f"has records of format {str(error).split()[1]}, which celery-coordinator {VERSION} cannot read"
        return StoreRefused(f"Redis at {where} {text}: upgrade this process; nothing is lost until then", job_id)
    if "DB index is out of range" in str(error):
        return StoreRefused(f"Redis at {where} has no database of this number", job_id)
    if isinstance(error, _REFUSALS) or any(word in str(error) for word in _REFUSING):
        full = isinstance(error, redis.exceptions.OutOfMemoryError)
        return StoreRefused(f"Redis at {where} refuses writes: {error}", job_id, full)
    return None
