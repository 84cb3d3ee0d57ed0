"""The client of Redis: it names keys, runs steps and commands, and translates errors.

Keys have the form `{<prefix>}:<kind>[:<part>]:<name>`. The caller's text is always last, so that it needs no escaping,
and two names never give the same key. Because of the braces, a cluster stores all keys of an installation in one slot.
Each change is a step: a function of the Redis library in `functions/`, which gets the prefix as its first key and
derives the names of all other keys from the prefix.

The client retries no call by itself: a lost reply raises `StoreUnavailable`, and the caller may repeat the step with
the same token. `connections.py` sends requests and receives replies; `coordinator/aio` has another implementation of
that for asyncio.
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

from coordinator.core.address import without_secrets
from coordinator.core.store.connections import Connections, Listener, Pop
from coordinator.core.store.library import Library, Loaded, check_server, current, is_missing, loaded
from coordinator.core.store.steps import clock_read
from coordinator.core.store.times import ClockReading
from coordinator.core.store.wire import Arg, pack, refused, says, unavailable, unwritable
from coordinator.errors import CoordinatorError, SettingsError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from coordinator.core.settings import Settings  # for types only: importing it loads pydantic

logger = logging.getLogger(__name__)

_LOADS = 10  # how often one call loads the library into Redis at most, if others keep removing it
T = TypeVar("T")
_deadline: ContextVar[float | None] = ContextVar("coordinator_deadline", default=None)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Make calls to Redis in this block raise TimeoutError if they begin after `deadline` (of `time.monotonic()`)."""
    before = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(before)


def time_left() -> float | None:
    """Return the seconds until the deadline of the `until` block around this code; None outside such blocks."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.monotonic()


class Store:
    """The client of one installation of the coordinator in Redis: its keys begin with the setting `prefix`. Connects at
    the first call.
    """

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
        """Create a separate client of redis-py, for calls that block up to `timeout` seconds."""
        return self.connections.connect(timeout)

    def key(self, kind: str, *parts: str) -> str:
        return self.prefix + ":".join((kind, *parts))

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        """Run the step `name` (a function of the library in `functions/`), and return its reply, texts as bytes.

        `job_id`: the job that a StoreUnavailable or StoreRefused names.
        """
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
        """Run the step `name` once for each argument list in `calls`, in one round trip. Returns a reply for each call,
        or the exception that it raised: `checked` tells which.
        """
        packed = [self._packed(name, args) for args in calls]
        replies = self.call(lambda: self._ask_many(packed))
        if any(_leads_elsewhere(reply) for reply in replies):
            self.connections.disconnect()
        return replies

    def read(self, command: str, *args: Arg, job_id: str | None = None) -> Any:
        """Run one of Redis' own commands, and return the reply as redis-py converts it (HGETALL: a dict of bytes)."""
        return self.call(lambda: self.connections.execute(command, *args), job_id)

    def read_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """Run commands in one round trip, and return their replies. `atomic`: as one transaction. Raises the first
        error among the replies. A command from `looking` is also possible: it runs a step that only reads.
        """
        asked = list(commands)

        def ask() -> list[Any]:
            try:
                return self.connections.execute_many(asked, atomic)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            clock_read(self)  # any step loads the missing library
            return self.connections.execute_many(asked, atomic)

        return self.call(ask)

    def looking(self, name: str, *args: Arg) -> Sequence[Arg]:
        """Return the command that runs the step `name`, one that only reads, for use in `read_many`."""
        return "FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args

    def listening(self, channel: str) -> AbstractContextManager[Listener]:
        """Subscribe to `channel` for the length of a `with` block. The block gets a function that waits for the next
        message, up to a number of seconds.

        The function's first call, and its first call after an error, only subscribes and returns at once: the message
        may have been sent before, so the caller must read the awaited state after each call.
        """
        return self.connections.listening(channel, self.call)

    def pop(self, key: str) -> AbstractContextManager[Pop]:
        """Open a connection for the length of a `with` block. The block gets a function that removes the first element
        of the list `key`, waits for one up to a number of seconds, and returns None if the list stayed empty.
        """
        return self.connections.pop(key, self.call)

    def pause(self, seconds: float) -> None:
        self.connections.pause(seconds)

    def insist(self, ask: Callable[[], T], deadline: float, what: str = "") -> T:
        """Call `ask`, and repeat the call while it raises StoreUnavailable: at least once, and until `deadline` (of
        `time.monotonic()`), but not where a server answered that is not the right Redis. `what`: names the operation in
        the log message about the first failure; "": no message.
        """
        tries, pause = 0, 0.05
        while True:
            try:
                return ask()
            except StoreUnavailable as error:
                time_left = deadline - time.monotonic()
                # A password that is being changed may be refused for a moment.
                if (error.answered and not self.connections.login) or (tries and time_left <= 0):
                    raise
                if what and not tries:
                    logger.warning("%s goes on, though a call to Redis failed: %s", what, error)
            tries += 1
            self.pause(min(pause, max(0.05, time_left)))
            pause = min(0.5, pause * 2)

    def look(self, name: str, *args: Arg) -> Any:
        """Run the step `name`, one that only reads, through redis-py's own client: it reconnects by itself if the
        server has closed an idle connection.
        """

        def ask() -> object:
            try:
                return self.connections.execute("FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args)
            except redis.exceptions.ResponseError as error:
                if not is_missing(error):
                    raise
            return self.step(name, *args)

        return self.call(ask)

    def clock(self) -> ClockReading:
        """Read the clocks of the installation and of the server."""
        return ClockReading(*clock_read.look(self))

    def now(self) -> int:
        """Return the installation's clock in ms, which stored times and durations are compared with. Times that people
        name are compared with `clock().wall`.
        """
        return self.clock().now

    def check(self, functions: bool = True) -> None:
        """Raise SettingsError if the server is too old, or has no Redis Functions (`functions`: False if it is known
        that it has none). Returns without an error if the server does not answer.
        """
        with suppress(StoreUnavailable, StoreRefused, redis.exceptions.RedisError):
            check_server(self.read("INFO", "server"), self.where, functions)

    def setting(self, name: str) -> str | None:
        """Return a setting of the server (CONFIG GET); None if the server refuses to show it."""
        found = self.allowed("CONFIG GET", name)
        return found.get(name) if isinstance(found, dict) else None

    def allowed(self, command: str, *args: Arg) -> object:
        """Run one of Redis' own commands, as `read`; None if the server refuses it to this user, or has no such one."""
        with suppress(StoreRefused, redis.exceptions.ResponseError):
            return cast(object, self.read(command, *args))
        return None

    def refusal(self, ask: Callable[[], object]) -> str:
        """Call `ask`, and return what was said against it: the text of an error of Redis or of the connection; "" where
        it went well.
        """
        try:
            ask()
        except (CoordinatorError, redis.exceptions.RedisError) as error:
            return str(error)
        return ""

    def libraries(self) -> list[Loaded]:
        """List all libraries of Redis Functions on the server, including those of other programs."""
        return loaded(self.read("FUNCTION LIST"), self.library)

    def remove_library(self, name: str) -> None:
        """Remove the library `name` from the server. A process that uses it loads it again at its next call."""
        self.read("FUNCTION DELETE", name)

    def _packed(self, name: str, args: Sequence[Arg]) -> bytes:
        return pack("FCALL", f"{name}_{self.library.digest}", 1, self.prefix, *args)

    def _ask_many(self, packed: list[bytes]) -> list[Any]:
        """Send packed calls in one round trip, and return a reply or an exception for each. If the library is missing
        on the server, load it and repeat the failed calls in the same packet, so that hardly any other process can
        remove the library in between.
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
                text = f"its memory is full, so the library of functions cannot be loaded into it ({loaded})"
                raise redis.exceptions.OutOfMemoryError(text)
            if isinstance(loaded, Exception) and "already exists" not in str(loaded):  # another process loaded it first
                raise loaded
        return replies

    def checked(self, reply: T | Exception, job_id: str | None = None) -> T:
        """Return a reply of `step_many`, or raise the exception that stands in its place, translated as `call` does.
        `job_id`: the job that a StoreUnavailable or StoreRefused names.
        """

        def value() -> T:
            if isinstance(reply, Exception):
                raise reply
            return reply

        return self.call(value, job_id)

    def call(self, ask: Callable[[], T], job_id: str | None = None) -> T:
        """Call `ask`, and translate redis-py's exceptions: connection errors become StoreUnavailable, refusals of the
        server StoreRefused; a text that UTF-8 cannot encode becomes InvalidJob. Raises TimeoutError after the deadline
        of an `until` block. `job_id`: the job that the exception names.
        """
        if (seconds := time_left()) is not None and seconds < 0:
            raise TimeoutError("the time for these calls is over")
        try:
            return ask()
        except UnicodeEncodeError as error:
            raise unwritable(error) from error
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            # Behind Sentinel or in a cluster: all idle connections lead to the same failed server.
            if self.connections.server.moves:
                self.connections.disconnect()
            raise unavailable(self.where, error, job_id, self.connections.login) from error
        except redis.exceptions.InvalidResponse as error:
            self.connections.disconnect()
            raise unavailable(self.where, error, job_id, self.connections.login) from error
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
        """The address of this Redis without password and options, for messages."""
        return without_secrets(self.settings.url).partition("?")[0]

    @property
    def named_by(self) -> str:
        """What names the URL of this Redis, for people who have to change it."""
        source = self.settings.source("url")
        given = {"environment": "COORDINATOR_URL", "app.conf": "coordinator_url (app.conf)", "constructor": "url=…"}
        return given.get(source, source)

    @property
    def redis_cli(self) -> str:
        """A `redis-cli` command that connects to this server, for people to copy. The password is left out."""
        connection = self._client.get_connection_kwargs()
        database = connection.get("db") or 0
        if master := self.master:
            return f"redis-cli -u redis://{master}/{database}"
        if self.where.startswith("unix://"):
            return f"redis-cli -s {quote(connection['path'])} -n {database}"
        return f"redis-cli -u {quote(self.where)}"

    @property
    def master(self) -> str:
        """HOST:PORT of the current master behind Sentinel, or of the primary in a cluster; "" for a single server."""
        return self.connections.server.master(self._client)

    def close(self) -> None:
        self.connections.close()


def _missing(replies: list[Any]) -> list[int]:
    """Return the indexes of the calls that failed because the library is missing on the server."""
    return [index for index, reply in enumerate(replies) if is_missing(reply)]


_MOVED = ("MOVED", "ASK")  # errors of a cluster: another node has the slot of the keys, or will have it


def _leads_elsewhere(error: object) -> bool:
    """True if `error` says that the server is no longer the master, or has lost its replicas."""
    return isinstance(error, Exception) and (
        says(error, "READONLY", "MASTERDOWN", *_MOVED) or "NOREPLICAS" in str(error)
    )
