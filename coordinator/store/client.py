"""The one door to Redis: the client, the names of the keys, `step(name)` and `read(command)`.

Names are `{<prefix>}:<kind>[:<part>]:<name>`; the caller's text is always last, so nothing needs escaping and nothing
collides, and the braces put an installation into one cluster slot. Each change is a step of the library
(`functions/`), which gets the prefix as its first key and derives the names of jobs and lanes from it.

No call is retried here: a lost reply is told (`StoreUnavailable`), and each step may be asked again with the same
token. A client is made per process: after a fork, anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import redis

from coordinator.address import without_secrets
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.settings import Settings
from coordinator.store.library import Library, Loaded, check_server, current, is_missing, loaded
from coordinator.store.sentinel import Server
from coordinator.store.times import Clock
from coordinator.store.wire import Arg, exchange_awake, pack, refused, reply_or_error, unavailable, unwritable

_SOON = 0.0003  # seconds in which an answer is worth waiting for awake
_FRESH = 0.5  # seconds in which an idle connection is trusted to be open
_LOADS = 10  # times that the library is loaded for one call, should others remove it as often
Ringer = Callable[[str, str], None]
T = TypeVar("T")


class Store:
    """Redis as one installation of the coordinator sees it. Cheap to make: connects at the first call.

    `ringer(node, bell)` publishes a doorbell that a step rang; it never raises. Without one (a plain client) the node's
    warden rings at its next look.
    """

    def __init__(self, settings: Settings, ringer: Ringer | None = None) -> None:
        if not settings.url:
            raise SettingsError("no Redis for the coordinator: set COORDINATOR_URL, coordinator_url or url=…")
        self.settings = settings
        self.ringer = ringer
        self.library: Library = current()
        self.prefix = "{" + settings.prefix + "}:"
        self._server = Server(settings.url, settings.timeout)
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
        return self._server.client(timeout)

    def key(self, kind: str, *parts: str) -> str:
        return self.prefix + ":".join((kind, *parts))

    def step(self, name: str, *args: Arg, job_id: str | None = None, eager: bool = False) -> Any:
        """Do one step of the library (`functions/`); its reply as Redis gives it (bytes). Bells that it rang go out.

        The hot path: one request on a connection of our own, without what a general client does around it. `eager`: see
        `_exchange`; for a thread that has its process for itself.
        """
        packed = self._packed(name, args)

        def ask(connection: redis.Connection) -> Any:
            try:
                return self._exchange(connection, packed, eager)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            [reply] = self._ask_many(connection, [packed])
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self._rung(self.call(lambda: self._talk(ask), job_id))

    def expect_soon(self) -> None:
        """The next eager step waits for its answer awake: after a pause, a late one before it says nothing."""
        self._soon = True

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        """Do one step for each argument list, in one round trip; a refused call's place holds its error."""
        packed = [self._packed(name, args) for args in calls]

        replies = self.call(lambda: self._talk(lambda connection: self._ask_many(connection, packed)))
        if any(_leads_elsewhere(reply) for reply in replies):
            self._disconnect()
        return [reply if isinstance(reply, Exception) else self._rung(reply) for reply in replies]

    def _rung(self, answer: list[Any]) -> Any:
        """A step's reply; the bells that it rang stand behind it."""
        if len(answer) > 1 and self.ringer is not None:
            for node, bell in answer[1]:
                self.ringer(node.decode(), bell.decode())
        return answer[0]

    def read(self, command: str, *args: Arg, job_id: str | None = None) -> Any:
        """One command that the server knows by itself; its reply as redis-py reads it (HGETALL: a dict of bytes)."""
        return self.call(lambda: self.client.execute_command(command, *args), job_id)

    def clock(self) -> Clock:
        """The time there; asked as by `read`, which sees that an idle connection was closed."""

        def ask() -> Clock:
            function = f"clock_read_{self.library.digest}"
            try:
                return Clock(*self.client.execute_command("FCALL", function, 1, self.prefix)[0])
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            return Clock(*self.step("clock_read"))

        return self.call(ask)

    def now(self) -> int:
        """By the installation's clock, in ms: for stored spans; instants that people named go by `clock().wall`."""
        return self.clock().now

    def check(self) -> None:
        """Raises SettingsError where the server says that it is too old. One that is away, or tells nothing, may do."""
        with suppress(StoreUnavailable, StoreRefused, redis.exceptions.RedisError):
            check_server(self.read("INFO", "server"), self.where)

    def libraries(self) -> list[Loaded]:
        """All libraries of functions that the server has, others' too."""
        return loaded(self.read("FUNCTION LIST"), self.library)

    def remove_library(self, name: str) -> None:
        """A process that uses it loads it again."""
        self.read("FUNCTION DELETE", name)

    def _exchange(self, connection: redis.Connection, packed: bytes, eager: bool) -> Any:
        """Send, and give the answer. A processor that went to sleep needs 50 us and more to wake, nearly as long as
        Redis needs for the answer. So an eager caller stays awake and looks for it, giving way to whoever else can run,
        as long as Redis answers that soon: one late answer, and the next is waited for asleep.
        """
        sent = time.perf_counter()
        if not (eager and self._soon and exchange_awake(connection, packed, _SOON)):
            self._send(connection, packed)
        reply = connection.read_response()
        self._soon = time.perf_counter() - sent < _SOON
        return reply

    def _packed(self, name: str, args: Sequence[Arg]) -> bytes:
        function = f"{name}_{self.library.digest}"
        if self.ringer is None:  # a second key says so
            return pack("FCALL", function, 2, self.prefix, self.prefix + "unrung", *args)
        return pack("FCALL", function, 1, self.prefix, *args)

    def _ask_many(self, connection: redis.Connection, packed: list[bytes]) -> list[Any]:
        """A reply or an error for each call. Those that the server had no library for go out again, behind the library
        and in one packet with it: hardly a removal finds its way between.
        """
        replies: list[Any] = [None] * len(packed)
        places = list(range(len(packed)))
        load = b""
        for _ in range(_LOADS + 1):
            self._send(connection, load + b"".join(packed[place] for place in places))
            loaded = reply_or_error(connection) if load else None
            for place in places:
                replies[place] = reply_or_error(connection)
            places = [place for place in places if is_missing(replies[place])]
            if not places:
                break
            if isinstance(loaded, redis.exceptions.OutOfMemoryError):
                text = f"it is full, so that the library of functions cannot be loaded; nodes that run go on ({loaded})"
                raise redis.exceptions.OutOfMemoryError(text)
            if isinstance(loaded, Exception) and "already exists" not in str(loaded):  # else somebody was first
                raise loaded
            load = pack("FUNCTION", "LOAD", self.library.text)
        return replies

    def _send(self, connection: redis.Connection, packed: bytes) -> None:
        connection.send_packed_command([packed], check_health=False)

    def _talk(self, ask: Callable[[redis.Connection], T]) -> T:
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
            # Not `make_connection`, which counts each one that it ever made against the pool's bound.
            pool = client.connection_pool
            return cast(redis.Connection, pool.connection_class(**pool.connection_kwargs))
        if not client.connection_pool.owns_connection(connection):  # it leads to a former master
            connection.disconnect()
        # Closed by the server meanwhile? Then there is something to read; asking costs a system call.
        if time.monotonic() - used > _FRESH:
            try:
                closed = connection.can_read(timeout=0)
            except redis.exceptions.ConnectionError:
                closed = True
            if closed:
                connection.disconnect()
        return connection

    def checked(self, reply: T | Exception, job_id: str | None = None) -> T:
        """One of `step_many`'s replies; raises what it holds, as `call` does."""

        def given() -> T:
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self.call(given, job_id)

    def call(self, ask: Callable[[], T], job_id: str | None = None) -> T:
        """Run `ask`. Connection errors of redis become StoreUnavailable and refusals StoreRefused; a text that UTF-8
        cannot say becomes InvalidJob.
        """
        try:
            return ask()
        except UnicodeEncodeError as error:
            raise unwritable(error) from error
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            if self._server.moves:  # the idle connections lead to the same server: each would take a timeout
                self._disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.InvalidResponse as error:
            self._disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.ResponseError as error:
            if _leads_elsewhere(error):
                self._disconnect()
            if "unknown command" in str(error).lower():
                self.check()
            if isinstance(error, _PASSING) or str(error).startswith("BUSY") or is_missing(error):
                raise StoreUnavailable(f"Redis at {self.where}: {error}", job_id) from error
            if (found := refused(self.where, error, job_id)) is not None:
                raise found from error
            raise

    @property
    def where(self) -> str:
        """The address without its password and its options, for messages."""
        return without_secrets(self.settings.url).partition("?")[0]

    @property
    def master(self) -> str:
        """HOST:PORT that the last new connection found through Sentinel; empty where the address names one server."""
        return self._server.master(self.client)

    def close(self) -> None:
        if self._client is not None and self._pid == os.getpid():
            self._client.close()
            self._disconnect()
        self._client = None

    def _disconnect(self) -> None:
        """Close the idle connections. After a failover behind one address they lead to the old master: the next call
        connects anew, and reaches the new one.
        """
        self.client.connection_pool.disconnect(inuse_connections=False)
        while True:
            try:
                self._idle.pop()[0].disconnect()
            except IndexError:
                return


_PASSING = (redis.exceptions.ClusterDownError, redis.exceptions.MasterDownError, redis.exceptions.TryAgainError)
_FAILED_OVER = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)


def _leads_elsewhere(error: object) -> bool:
    """Does a server say so that is the master no more, or one that was cut off from its replicas?"""
    return isinstance(error, _FAILED_OVER) or (isinstance(error, Exception) and "NOREPLICAS" in str(error))
