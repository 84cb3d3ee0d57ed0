"""Packs commands for Redis, reads replies, and translates redis-py's exceptions into those of this library."""

from __future__ import annotations

from typing import cast

import redis
from hiredis import pack_command

from coordinator.core.store.login import Login, NoLogin
from coordinator.core.version import VERSION
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable

Arg = str | bytes | int | float


def pack(*parts: Arg) -> bytes:
    """Encode one command in the protocol of Redis. Raises InvalidJob for a text that UTF-8 cannot encode."""
    try:
        return cast(bytes, pack_command(parts))  # type: ignore[arg-type]  # the stub of `pack_command` is wrong
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def unwritable(error: UnicodeEncodeError) -> InvalidJob:
    """Return the exception for a text that UTF-8 cannot encode (a key, an id, a reason …). It quotes the beginning of
    the text.
    """
    text = repr(error.object)
    return InvalidJob(f"{text[:100]}{'…' if len(text) > 100 else ''} cannot be encoded as UTF-8: {error.reason}")


def reply_or_error(connection: redis.Connection) -> object:
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error


# Errors after which a server has answered, but cannot be used: the exception type of redis-py, words in its text, and
# the message for people.
_ANSWERS = (
    (redis.exceptions.InvalidResponse, "", "the server at this address is not a Redis"),
    (redis.exceptions.AuthenticationError, "already authenticated", "requires a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "required", "requires a password: redis://:PASSWORD@HOST"),
    (redis.exceptions.AuthenticationError, "", "refuses this user or password"),
)


def unavailable(where: str, error: Exception, job_id: str | None, login: Login | None) -> StoreUnavailable:
    """Return the exception for a call that got no reply, or a reply from a server that cannot be used. `where`: the
    address; `job_id`: the job that the exception names; `login`: that is not in the URL.
    """
    for kind, words, text in _ANSWERS:
        if isinstance(error, kind) and words in str(error):
            by = f", by the {login.setting}" if login and kind is redis.exceptions.AuthenticationError else ""
            unusable = StoreUnavailable(f"Redis at {where}: {text}{by}", job_id)
            unusable.answered = True
            return unusable
    failed = StoreUnavailable(f"Redis at {where}: {error}", job_id)
    failed.answered = isinstance(error, NoLogin)
    return failed


# redis-py turns the first word of some errors of Redis into an exception class, and removes it from the text. In
# redis-py 5, only the client for clusters does that for most of these words.
_WORDS = {
    "ASK": redis.exceptions.AskError,
    "CLUSTERDOWN": redis.exceptions.ClusterDownError,
    "MASTERDOWN": redis.exceptions.MasterDownError,
    "MOVED": redis.exceptions.MovedError,
    "READONLY": redis.exceptions.ReadOnlyError,
    "TRYAGAIN": redis.exceptions.TryAgainError,
}


def says(error: Exception, *words: str) -> bool:
    """True if the text of the error, as Redis sent it, began with one of these words."""
    return isinstance(error, tuple(_WORDS[word] for word in words if word in _WORDS)) or str(error).startswith(words)


_REFUSALS = (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
_REFUSING = ("OOM ", "READONLY", "MISCONF", "NOREPLICAS")
# As in docs/operations.md, which says why.
_RIGHTS = (
    "~{PREFIX}:* &{PREFIX}:* +@read +@write +@connection +@pubsub +@transaction +fcall +time +info, and that of a node "
    "+function|load"
)
_FORBIDDEN = ("NOPERM", "ACL failure", "The user executing the script can't")


def refused(where: str, error: Exception, job_id: str | None) -> StoreRefused | None:
    """Return the exception for a call that the server refused because of its state or its ACL; None if the call itself
    was wrong. `where`: the address; `job_id`: the job that the exception names.
    """
    if isinstance(error, redis.exceptions.NoPermissionError) or any(word in str(error) for word in _FORBIDDEN):
        rules = f"a user needs {_RIGHTS}; Redis' ACL LOG shows what is missing"
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
