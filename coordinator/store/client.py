"""The one door to Redis: the names of the keys, `step(name)` and `read(command)`, and what their errors mean.

Names are `{<prefix>}:<kind>[:<part>]:<name>`; the caller's text is always last, so nothing needs escaping and nothing
collides, and the braces put an installation into one cluster slot. Each change is a step of the library
(`functions/`), which gets the prefix as its first key and derives the names of jobs and lanes from it.

No call is retried here: a lost reply is told (`StoreUnavailable`), and each step may be asked again with the same
token. `connections.py` carries what is asked, and waits; asyncio has another one (`coordinator/aio`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

import redis

from coordinator.address import without_secrets
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.settings import Settings
from coordinator.store.connections import Connections, Listener
from coordinator.store.library import Library, Loaded, check_server, current, is_missing, loaded
from coordinator.store.times import Clock
from coordinator.store.wire import Arg, pack, refused, unavailable, unwritable

_LOADS = 10  # times that the library is loaded for one call, should others remove it as often
Ringer = Callable[[str, str], None]
T = TypeVar("T")


class Store:
    """Redis as one installation of the coordinator sees it. Cheap to make: connects at the first call.

    `ringer(node, bell)` publishes a doorbell that a step rang; it never raises. Without one (a plain client) the node's
    warden rings at its next look.
    """

    def __init__(
        self, settings: Settings, ringer: Ringer | None = None, connections: Connections | None = None
    ) -> None:
        if not settings.url:
            raise SettingsError("no Redis for the coordinator: set COORDINATOR_URL, coordinator_url or url=…")
        self.settings = settings
        self.ringer = ringer
        self.connections = connections or Connections(settings)
        self.library: Library = current()
        self.prefix = "{" + settings.prefix + "}:"

    def __reduce__(self) -> tuple[type[Store], tuple[Settings]]:
        return Store, (self.settings,)

    @property
    def client(self) -> redis.Redis:
        """This process's client; commands through it raise redis's own errors (see `call`)."""
        return self.connections.client

    def connect(self, timeout: float) -> redis.Redis:
        """A client of its own, for calls that block up to `timeout` seconds."""
        return self.connections.connect(timeout)

    def key(self, kind: str, *parts: str) -> str:
        return self.prefix + ":".join((kind, *parts))

    def step(self, name: str, *args: Arg, job_id: str | None = None, eager: bool = False) -> Any:
        """Do one step of the library (`functions/`); its reply as Redis gives it (bytes). Bells that it rang go out.

        `eager`: see `Connections.ask`; for a thread that has its process for itself.
        """
        packed = self._packed(name, args)

        def ask() -> Any:
            try:
                return self.connections.ask(packed, eager)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            [reply] = self._ask_many([packed])
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self._rung(self.call(ask, job_id))

    def expect_soon(self) -> None:
        """The next eager step waits for its answer awake: after a pause, a late one before it says nothing."""
        self.connections.soon = True

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        """Do one step for each argument list, in one round trip; a refused call's place holds its error."""
        packed = [self._packed(name, args) for args in calls]
        replies = self.call(lambda: self._ask_many(packed))
        if any(_leads_elsewhere(reply) for reply in replies):
            self.connections.disconnect()
        return [reply if isinstance(reply, Exception) else self._rung(reply) for reply in replies]

    def _rung(self, answer: list[Any]) -> Any:
        """A step's reply; the bells that it rang stand behind it."""
        if len(answer) > 1 and self.ringer is not None:
            for node, bell in answer[1]:
                self.ringer(node.decode(), bell.decode())
        return answer[0]

    def read(self, command: str, *args: Arg, job_id: str | None = None) -> Any:
        """One command that the server knows by itself; its reply as redis-py reads it (HGETALL: a dict of bytes)."""
        return self.call(lambda: self.connections.execute(command, *args), job_id)

    def read_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """As `read`, many commands in one round trip; `atomic`: nothing comes between them. Raises the first error."""
        return self.call(lambda: self.connections.execute_many(commands, atomic))

    def listening(self, channel: str) -> AbstractContextManager[Listener]:
        """Give a call that waits for a notice on this channel, so many seconds at most. Its first call subscribes, and
        comes back at once: what was to be noticed may have come before. So does the first one after an error.
        """
        return self.connections.listening(channel, self.call)

    def pop(self, key: str) -> AbstractContextManager[Callable[[float], bool]]:
        """Give a call that takes an element from this list, and waits for one so many seconds at most. Was there one?

        It has a connection of its own.
        """
        return self.connections.pop(key, self.call)

    def pause(self, seconds: float) -> None:
        self.connections.pause(seconds)

    def insist(self, ask: Callable[[], T], deadline: float) -> T:
        """A lost reply leaves it unknown whether it was done: ask again, the same, at least once, and until `deadline`
        (monotonic).
        """
        with suppress(StoreUnavailable):
            return ask()
        while True:
            self.pause(0.05)
            try:
                return ask()
            except StoreUnavailable:
                if time.monotonic() >= deadline:
                    raise

    def clock(self) -> Clock:
        """The time there; asked as by `read`, which sees that an idle connection was closed."""

        def ask() -> Clock:
            function = f"clock_read_{self.library.digest}"
            try:
                return Clock(*self.connections.execute("FCALL", function, 1, self.prefix)[0])
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

    def _packed(self, name: str, args: Sequence[Arg]) -> bytes:
        function = f"{name}_{self.library.digest}"
        if self.ringer is None:  # a second key says so
            return pack("FCALL", function, 2, self.prefix, self.prefix + "unrung", *args)
        return pack("FCALL", function, 1, self.prefix, *args)

    def _ask_many(self, packed: list[bytes]) -> list[Any]:
        """A reply or an error for each call. Those that the server had no library for go out again, behind the library
        and in one packet with it: hardly a removal finds its way between.
        """
        replies = self.connections.ask_many(packed)
        for _ in range(_LOADS):
            if not (places := _missing(replies)):
                break
            load = pack("FUNCTION", "LOAD", self.library.text)
            loaded, *again = self.connections.ask_many([load, *(packed[place] for place in places)])
            for place, reply in zip(places, again, strict=True):
                replies[place] = reply
            if not _missing(replies):
                break
            if isinstance(loaded, redis.exceptions.OutOfMemoryError):
                text = f"it is full, so that the library of functions cannot be loaded; nodes that run go on ({loaded})"
                raise redis.exceptions.OutOfMemoryError(text)
            if isinstance(loaded, Exception) and "already exists" not in str(loaded):  # else somebody was first
                raise loaded
        return replies

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
            if self.connections.server.moves:  # the idle ones lead to the same server: each would take a timeout
                self.connections.disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.InvalidResponse as error:
            self.connections.disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.ResponseError as error:
            if _leads_elsewhere(error):
                self.connections.disconnect()
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
        return self.connections.server.master(self.client)

    def close(self) -> None:
        self.connections.close()


def _missing(replies: list[Any]) -> list[int]:
    """The places of the calls that the server had no library for."""
    return [place for place, reply in enumerate(replies) if is_missing(reply)]


_PASSING = (redis.exceptions.ClusterDownError, redis.exceptions.MasterDownError, redis.exceptions.TryAgainError)
_FAILED_OVER = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)


def _leads_elsewhere(error: object) -> bool:
    """Does a server say so that is the master no more, or one that was cut off from its replicas?"""
    return isinstance(error, _FAILED_OVER) or (isinstance(error, Exception) and "NOREPLICAS" in str(error))
