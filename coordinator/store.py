"""The one door to Redis: the client, the names of the keys, and `run(script)`.

Names are `{<prefix>}:<kind>[:<part>]:<name>`; the caller's text is always last, so nothing needs escaping and nothing
collides, and the braces put an installation into one cluster slot. A script is one file of `lua/`; a line
`-- include <file>` in it is replaced by that file, once. Scripts get the prefix as KEYS[1] and derive the names of
jobs and lanes from it.

No call is retried here: a lost reply is told (`StoreUnavailable`), and each script may be asked again with the same
token. A client is made per process: after a fork, anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast

import redis
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.settings import Settings

_SOON = 0.0003  # seconds in which an answer is worth waiting for awake
_FRESH = 0.5  # seconds in which an idle connection is trusted to be open
Arg = str | bytes | int | float

_SECRET = re.compile(r"//[^/?]*@|([?&](?:username|password)=)[^&]*")
_INCLUDE = re.compile(r"^( *)-- include (\S+)$", re.MULTILINE)


def text_of(name: str) -> str:
    """`lua/<name>.lua` as it is."""
    return resources.files("coordinator").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def assemble(script: str, text_of: Callable[[str], str] = text_of) -> str:
    """A script with its includes put in, each once; what an indented one brings is known in its block only."""

    def read(name: str, seen: set[str]) -> str:
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(lambda match: read(match[2], set(seen) if match[1] else seen), text_of(name))

    return read(script, set())


source = cache(assemble)


def _pack(*parts: Arg) -> bytes:
    return cast(bytes, pack_command(parts))  # type: ignore[arg-type]  # its stub knows commands of one part


@cache
def sha_of(script: str) -> str:
    """The name by which Redis knows a script that it was given before."""
    return hashlib.sha1(source(script).encode(), usedforsecurity=False).hexdigest()


class Store:
    """Redis as one installation of the coordinator sees it. Cheap to make: connects at the first call."""

    def __init__(self, settings: Settings) -> None:
        if not settings.url:
            raise SettingsError("no Redis for the coordinator: set COORDINATOR_URL, coordinator_url or url=…")
        self.settings = settings
        self.prefix = "{" + settings.prefix + "}:"
        self._client: redis.Redis | None = None
        self._idle: list[tuple[redis.Connection, float]] = []
        self._pid = 0
        self._soon = False  # did the last answer come within _SOON?

    def __reduce__(self) -> tuple[type[Store], tuple[Settings]]:
        return Store, (self.settings,)

    @property
    def client(self) -> redis.Redis:
        """This process's client; commands through it raise redis's own errors (see `call`)."""
        if self._client is None or self._pid != os.getpid():
            self._client = self.connect(self.settings.timeout)
            self._idle = []
            self._pid = os.getpid()
        return self._client

    def connect(self, timeout: float) -> redis.Redis:
        """A client of its own, for calls that block up to `timeout` seconds."""
        tcp = {} if self.settings.url.startswith("unix") else {"socket_keepalive": True}
        return redis.Redis.from_url(
            self.settings.url,
            socket_timeout=timeout,
            socket_connect_timeout=min(timeout, self.settings.timeout),
            retry=Retry(NoBackoff(), 0),
            **tcp,
        )

    def key(self, kind: str, *parts: str) -> str:
        return self.prefix + ":".join((kind, *parts))

    def run(self, script: str, *args: Arg, job_id: str | None = None, eager: bool = False) -> Any:
        """Run `lua/<script>.lua` with KEYS[1] = the prefix; its answer as Redis gives it (bytes).

        The hot path: one request on a connection of our own, without what a general client does around it. `eager`: see
        `_answer`; for a thread that has its process for itself.
        """
        return self.call(lambda: self._ask(script, args, eager), job_id=job_id)

    def _ask(self, script: str, args: Sequence[Arg], eager: bool) -> Any:
        def ask(connection: redis.Connection) -> Any:
            self._send(connection, self._packed(script, args))
            try:
                return self._answer(connection, eager)
            except redis.exceptions.NoScriptError:
                self._send(connection, _pack("EVAL", source(script), 1, self.prefix, *args))
                return connection.read_response()

        return self._talk(ask)

    def _answer(self, connection: redis.Connection, eager: bool) -> Any:
        """The answer to what was sent. A processor that went to sleep needs 50 us and more to wake, nearly as long as
        Redis needs for the answer. So an eager caller stays awake and looks for it, giving way to whoever else can run,
        as long as Redis answers that soon: one late answer, and the next is waited for asleep.
        """
        sent = time.perf_counter()
        if eager and self._soon:
            while not connection.can_read(timeout=0) and time.perf_counter() - sent < _SOON:
                os.sched_yield()
        reply = connection.read_response()
        self._soon = time.perf_counter() - sent < _SOON
        return reply

    def _packed(self, script: str, args: Sequence[Arg]) -> bytes:
        return _pack("EVALSHA", sha_of(script), 1, self.prefix, *args)

    def _send(self, connection: redis.Connection, packed: bytes) -> None:
        connection.send_packed_command([packed], check_health=False)

    def _talk(self, ask: Callable[[redis.Connection], Any]) -> Any:
        """Ask on a connection of our own, which is kept unless it broke."""
        connection = self._borrow()
        try:
            reply = ask(connection)
        except redis.exceptions.ResponseError:
            self._idle.append((connection, time.monotonic()))
            raise
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append((connection, time.monotonic()))
        return reply

    def _borrow(self) -> redis.Connection:
        client = self.client
        try:
            connection, used = self._idle.pop()
        except IndexError:
            return cast(redis.Connection, client.connection_pool.make_connection())
        # Closed by the server meanwhile? Then there is something to read; asking costs a system call.
        if time.monotonic() - used > _FRESH:
            try:
                closed = connection.can_read(timeout=0)
            except redis.exceptions.ConnectionError:
                closed = True
            if closed:
                connection.disconnect()
        return connection

    def run_many(self, script: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        """Run one script once for each argument list, in one round trip; a refused call's place holds its error."""
        packed = [_pack("SCRIPT", "LOAD", source(script)), *(self._packed(script, args) for args in calls)]

        def answer(connection: redis.Connection) -> Any:
            try:
                return connection.read_response()
            except redis.exceptions.ResponseError as error:
                return error

        def ask(connection: redis.Connection) -> list[Any]:
            self._send(connection, b"".join(packed))
            return [answer(connection) for _ in packed][1:]

        return cast(list[Any], self.call(lambda: self._talk(ask)))

    def checked(self, reply: Any, job_id: str | None = None) -> Any:
        """One of `run_many`'s answers; raises what it holds, as `call` does."""

        def complain() -> Any:
            raise reply

        return self.call(complain, job_id) if isinstance(reply, Exception) else reply

    def call(self, ask: Callable[[], Any], job_id: str | None = None) -> Any:
        """Run `ask`, turning redis's connection errors into StoreUnavailable and refusals into StoreRefused."""
        try:
            return ask()
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            raise StoreUnavailable(f"Redis at {self.where}: {error}", job_id) from error
        except redis.exceptions.ResponseError as error:
            if isinstance(error, _PASSING) or str(error).startswith("BUSY"):
                raise StoreUnavailable(f"Redis at {self.where}: {error}", job_id) from error
            if isinstance(error, _REFUSALS) or any(word in str(error) for word in _REFUSING):
                raise StoreRefused(f"Redis at {self.where} refuses writes: {error}", job_id) from error
            raise

    @property
    def where(self) -> str:
        """The address without its password, for messages."""
        return _SECRET.sub(lambda found: (found[1] or "//") + "***" + ("" if found[1] else "@"), self.settings.url)

    def close(self) -> None:
        if self._client is not None and self._pid == os.getpid():
            self._client.close()
            while self._idle:
                self._idle.pop()[0].disconnect()
        self._client = None


# redis-py turns a known first word of an error into a class and takes it off the text.
_PASSING = (redis.exceptions.ClusterDownError, redis.exceptions.MasterDownError, redis.exceptions.TryAgainError)
_REFUSALS = (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
_REFUSING = ("OOM ", "READONLY", "MISCONF", "NOREPLICAS")


def milliseconds(seconds: float) -> int:
    """The one place where seconds become the scripts' milliseconds."""
    return round(seconds * 1000)


def seconds(milliseconds: float | bytes | str | None) -> float | None:
    """The way back; None and the empty text stay None."""
    return None if milliseconds in (None, b"", "") else float(milliseconds) / 1000
