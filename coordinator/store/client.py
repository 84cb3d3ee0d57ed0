"""All access to Redis: names its keys, runs steps and commands, and translates errors.

Keys are `{<prefix>}:<kind>[:<part>]:<name>`. The caller's text is always last, so nothing needs escaping and nothing
collides; the braces put an installation into one cluster slot. Each change is a step of the library (`functions/`),
which gets the prefix as its first key and derives all other keys from it.

The store retries no call: a lost reply raises `StoreUnavailable`, and the caller may repeat each step with the same
token. `connections.py` sends requests and waits for replies; asyncio has a second implementation (`coordinator/aio`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis

from coordinator.address import without_secrets
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.store.connections import Connections, Listener, Pop
from coordinator.store.library import Library, Loaded, check_server, current, is_missing, loaded
from coordinator.store.times import ClockReading
from coordinator.store.wire import Arg, pack, refused, says, unavailable, unwritable

if TYPE_CHECKING:
    from coordinator.settings import Settings  # it loads pydantic, and the clock has no need of that

logger = logging.getLogger(__name__)

_LOADS = 10  # loads of the library for one call, in case others remove it as often
T = TypeVar("T")
_deadline: ContextVar[float | None] = ContextVar("coordinator_deadline", default=None)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Have calls of this block that begin after `deadline` (monotonic) raise TimeoutError."""
    before = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(before)


def time_left() -> float | None:
    """The seconds until the deadline of `until`; None where there is none."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.monotonic()


class Store:
    """Redis as one installation of the coordinator sees it. Cheap to create: connects at the first call."""

    def __init__(
        self, settings: Settings, connections: Connections | None = None, library: Library | None = None
    ) -> None:
        if not settings.url:
            raise SettingsError("no Redis for the coordinator: set COORDINATOR_URL, coordinator_url or url=…")
        self.settings = settings
        self.connections = connections or Connections(settings)
        self.library = library or current()
        self.prefix = "{" + settings.prefix + "}:"

    def __reduce__(self) -> tuple[type[Store], tuple[Settings]]:
        return Store, (self.settings,)

    @property
    def _client(self) -> redis.Redis:
        return self.connections.client

    def connect(self, timeout: float) -> redis.Redis:
        """Create a separate client, for calls that block up to `timeout` seconds."""
        return self.connections.connect(timeout)

    def key(self, kind: str, *parts: str) -> str:
        return self.prefix + ":".join((kind, *parts))

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        """Run one step of the library (`functions/`), and return its reply (bytes)."""
        packed = self._packed(name, args)

        def ask() -> Any:
            try:
                return self.connections.ask(packed)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            [reply] = self._ask_many([packed])
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self.call(ask, job_id)

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        """Run a step once for each argument list, in one round trip. The result of a refused call is its error."""
        packed = [self._packed(name, args) for args in calls]
        replies = self.call(lambda: self._ask_many(packed))
        if any(_leads_elsewhere(reply) for reply in replies):
            self.connections.disconnect()
        return replies

    def read(self, command: str, *args: Arg, job_id: str | None = None) -> Any:
        """Run one of Redis' own commands; the reply as redis-py reads it (HGETALL: a dict of bytes)."""
        return self.call(lambda: self.connections.execute(command, *args), job_id)

    def read_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """Run many commands in one round trip; `atomic`: nothing comes between them. Raises the first error.

        Steps that only read may be among them: see `looking`.
        """
        asked = list(commands)

        def ask() -> list[Any]:
            try:
                return self.connections.execute_many(asked, atomic)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            self.step("clock_read")  # which loads the library
            return self.connections.execute_many(asked, atomic)

        return self.call(ask)

    def looking(self, name: str, *args: Arg) -> Sequence[Arg]:
        """A step that only reads, as a command for `read_many`."""
        return "FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args

    def listening(self, channel: str) -> AbstractContextManager[Listener]:
        """Return a function that waits for a message on this channel, up to a number of seconds.

        Its first call, and its first one after an error, subscribes and returns at once, because the awaited event may
        have come before.
        """
        return self.connections.listening(channel, self.call)

    def pop(self, key: str) -> AbstractContextManager[Pop]:
        """Return a function that removes an element from this list. It waits up to a number of seconds on its own
        connection; None: the list stayed empty.
        """
        return self.connections.pop(key, self.call)

    def pause(self, seconds: float) -> None:
        self.connections.pause(seconds)

    def insist(self, ask: Callable[[], T], deadline: float, what: str = "") -> T:
        """Call `ask`, and again where its reply was lost: at least once more, and until `deadline` (monotonic), but not
        where the wrong server answered. `what`: that which goes on, for the log.
        """
        tries, pause = 0, 0.05
        while True:
            try:
                return ask()
            except StoreUnavailable as error:
                time_left = deadline - time.monotonic()
                if error.answered or (tries and time_left <= 0):
                    raise
                if what and not tries:
                    logger.warning("%s goes on: %s", what, error)
            tries += 1
            self.pause(min(pause, max(0.05, time_left)))
            pause = min(0.5, pause * 2)

    def look(self, name: str, *args: Arg) -> Any:
        """Run a step that only reads, over a connection of redis-py, which notices when an idle one was closed."""

        def ask() -> object:
            try:
                return self.connections.execute("FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            return self.step(name, *args)

        return self.call(ask)

    def clock(self) -> ClockReading:
        """Read the server's clocks."""
        return ClockReading(*self.look("clock_read"))

    def now(self) -> int:
        """The installation's clock in ms: for stored spans. Instants that people name go by `clock().wall`."""
        return self.clock().now

    def check(self, functions: bool = True) -> None:
        """Raises SettingsError for a server that is too old, or has no functions. One that cannot be asked passes."""
        with suppress(StoreUnavailable, StoreRefused, redis.exceptions.RedisError):
            check_server(self.read("INFO", "server"), self.where, functions)

    def setting(self, name: str) -> str | None:
        """A setting of the server; None where the server does not disclose it."""
        with suppress(StoreRefused, redis.exceptions.ResponseError):
            return cast("str | None", self.read("CONFIG GET", name).get(name))
        return None

    def libraries(self) -> list[Loaded]:
        """All libraries of functions on the server, including those of other programs."""
        return loaded(self.read("FUNCTION LIST"), self.library)

    def remove_library(self, name: str) -> None:
        """Remove a library from the server. A process that uses it loads it again."""
        self.read("FUNCTION DELETE", name)

    def _packed(self, name: str, args: Sequence[Arg]) -> bytes:
        return pack("FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args)

    def _ask_many(self, packed: list[bytes]) -> list[Any]:
        """A reply or an error for each call. Calls that failed for want of the library are sent again in one packet
        with it, so that a removal hardly ever comes between.
        """
        replies = self.connections.ask_many(packed)
        for _ in range(_LOADS):
            if not (missing := _missing(replies)):
                break
            load = pack("FUNCTION", "LOAD", self.library.text)
            loaded, *again = self.connections.ask_many([load, *(packed[index] for index in missing)])
            for index, reply in zip(missing, again, strict=True):
                replies[index] = reply
            if not _missing(replies):
                break
            if isinstance(loaded, redis.exceptions.OutOfMemoryError):
                text = f"it is full, so that the library of functions cannot be loaded; nodes that run go on ({loaded})"
                raise redis.exceptions.OutOfMemoryError(text)
            if isinstance(loaded, Exception) and "already exists" not in str(loaded):  # another process loaded it first
                raise loaded
        return replies

    def checked(self, reply: T | Exception, job_id: str | None = None) -> T:
        """Return one of `step_many`'s replies, or raise the error in its place, translated as `call` does."""

        def value() -> T:
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self.call(value, job_id)

    def call(self, ask: Callable[[], T], job_id: str | None = None) -> T:
        """Run `ask`. Redis' connection errors become StoreUnavailable, its refusals StoreRefused, and a text that UTF-8
        cannot encode becomes InvalidJob. Raises TimeoutError behind the deadline of `until`.
        """
        if (seconds := time_left()) is not None and seconds < 0:
            raise TimeoutError("the time for these calls is over")
        try:
            return ask()
        except UnicodeEncodeError as error:
            raise unwritable(error) from error
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            if self.connections.server.moves:  # each idle one leads to the same server, and would cost a timeout
                self.connections.disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.InvalidResponse as error:
            self.connections.disconnect()
            raise unavailable(self.where, error, job_id) from error
        except redis.exceptions.ResponseError as error:
            if _leads_elsewhere(error):
                self.connections.disconnect()
            if "unknown command" in (text := str(error).lower()):
                self.check(functions="fcall" not in text)
            if says(error, *_MOVED):
                slot, node = str(error).split()[-2:]
                text = f"slot {slot} of the cluster is, or will be, at {node}"
                raise StoreUnavailable(f"Redis at {self.where}: {text}", job_id) from error
            if says(error, "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN") or is_missing(error):
                raise StoreUnavailable(f"Redis at {self.where}: {error}", job_id) from error
            if (refusal := refused(self.where, error, job_id)) is not None:
                raise refusal from error
            raise

    @property
    def where(self) -> str:
        """The address without its password and its options, for messages."""
        return without_secrets(self.settings.url).partition("?")[0]

    @property
    def redis_cli(self) -> str:
        """The program that reaches this server from a shell, for people. They put in its password."""
        connection = self._client.get_connection_kwargs()
        database = connection.get("db") or 0
        if master := self.master:
            return f"redis-cli -u redis://{master}/{database}"
        if self.where.startswith("unix://"):
            return f"redis-cli -s {quote(connection['path'])} -n {database}"
        return f"redis-cli -u {quote(self.where)}"

    @property
    def master(self) -> str:
        """HOST:PORT of the master that Sentinel named last; empty where the address names a server itself."""
        return self.connections.server.master(self._client)

    def close(self) -> None:
        self.connections.close()


def _missing(replies: list[Any]) -> list[int]:
    """Indexes of the calls that failed because the server lacks the library."""
    return [index for index, reply in enumerate(replies) if is_missing(reply)]


_MOVED = ("MOVED", "ASK")  # another node of the cluster has the slot, or will have it


def _leads_elsewhere(error: object) -> bool:
    """True for the error of a server that is no longer the master, or is cut off from its replicas."""
    return isinstance(error, Exception) and (
        says(error, "READONLY", "MASTERDOWN", *_MOVED) or "NOREPLICAS" in str(error)
    )
