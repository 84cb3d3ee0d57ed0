"""The connections of one process to Redis: they send commands, read replies and wait for messages.

A forked process opens new connections, and does not use those of its parent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import gethostname
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import quote

import redis

from coordinator.core.store.login import login_of
from coordinator.core.store.sentinel import Server
from coordinator.core.store.wire import Arg, reply_or_error
from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from coordinator.core.settings import Settings

_FRESH = 0.5  # seconds since its last use for which a connection is used again without a check that it is open
Listener = Callable[[float], None]
Pop = Callable[[float], bytes | None]
# Set by `coordinator.aio`: a function that returns the current greenlet, and the type of greenlets whose calls must not
# block, since an event loop runs them. None: `coordinator.aio` is not in use.
awaiting: tuple[Callable[[], object], type] | None = None
T = TypeVar("T")


class StoreCall(Protocol):
    """The type of `Store.call`, which calls a function and translates redis-py's exceptions."""

    def __call__(self, ask: Callable[[], T], /) -> T: ...


class Connections:
    """The connections of one process, opened at the first use. All methods but `listening` and `pop` raise redis-py's
    own exceptions.

    `patience`: the longest time that one call waits for a message, in seconds. After it, the caller reads the awaited
    state itself, in case a message was lost. `threaded`: any thread may use them. `shortest`: seconds of
    the shortest round trip, which only those of a bundle measure.
    """

    patience = 1.0
    threaded = True
    shortest: float | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.login = login_of(settings)
        keys, source = "{" + settings.prefix + "}:", settings.source("url")
        self.server = Server(settings.url, settings.timeout, keys, source, self.login, self._introduce)
        self._client: redis.Redis | None = None
        self._idle: list[tuple[redis.Connection, float]] = []
        self._pid = 0
        self.call_it("client", gethostname())

    def call_it(self, role: str, name: str) -> None:
        """Let Redis' CLIENT LIST show the connections as `coordinator:<role>:<name>`; those that are open are closed.
        `name`: of the node; the host's where there is no node.
        """
        self.close()
        self.name = f"coordinator:{role}:{quote(name, safe='@')}"  # Redis refuses blanks and letters that are not ASCII

    def _introduce(self, connection: redis.Connection) -> None:
        """Log in on a new connection, and name it. A server that refuses names is used all the same."""
        connection.on_connect()
        connection.send_command("CLIENT", "SETNAME", self.name, check_health=False)
        with suppress(redis.exceptions.ResponseError):
            connection.read_response()

    def _check_thread(self) -> None:
        """Raise CoordinatorError inside a call of `coordinator.aio`, where a blocking request would stop the event
        loop.
        """
        if awaiting is not None and isinstance(awaiting[0](), awaiting[1]):
            raise CoordinatorError("this call to Redis would block the event loop: call it through coordinator.aio")

    @property
    def client(self) -> redis.Redis:
        self._check_thread()
        if self._client is None or self._pid != os.getpid():
            self._client = self.connect(self._settings.timeout)
            self._idle = []
            self._pid = os.getpid()
        return self._client

    def connect(self, timeout: float) -> redis.Redis:
        """Create a separate client of redis-py, for calls that block up to `timeout` seconds."""
        self._check_thread()
        return self.server.client(timeout)

    def ask(self, packed: bytes) -> Any:
        """Send one packed command, and return the reply as Redis sends it. Bypasses redis-py's client and connection
        pool, to be fast.
        """

        def exchange(connection: redis.Connection) -> Any:
            connection.send_packed_command([packed], check_health=False)
            return connection.read_response()

        return self._talk(exchange)

    def ask_many(self, packed: Sequence[bytes]) -> list[Any]:
        """Send packed commands in one round trip, and return a reply or an exception for each."""

        def exchange(connection: redis.Connection) -> list[Any]:
            connection.send_packed_command([b"".join(packed)], check_health=False)
            return [reply_or_error(connection) for _ in packed]

        return self._talk(exchange)

    def execute(self, command: str, *args: Arg) -> Any:
        """Run one command, and return the reply as redis-py converts it."""
        return self.client.execute_command(command, *args)

    def execute_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """Run commands in one round trip, and return their replies. `atomic`: as one transaction. Raises the first
        error among the replies.
        """
        replies = self.replies(commands, atomic)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def replies(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[object]:
        """Run commands in one round trip, as `execute_many`, but return exceptions among the replies."""
        pipeline = self.client.pipeline(transaction=atomic)
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute(raise_on_error=False)  # with True, redis-py would change the texts of errors

    @contextmanager
    def listening(self, channel: str, call: StoreCall) -> Iterator[Listener]:
        """Subscribe to `channel` for a `with` block, as `Store.listening` describes. `call`: `Store.call`."""
        subscribed = False
        with call(lambda: self.client.pubsub(ignore_subscribe_messages=True)) as messages:

            def listen(seconds: float) -> None:
                nonlocal subscribed
                was_subscribed, subscribed = subscribed, False
                if was_subscribed:
                    call(lambda: messages.get_message(timeout=min(seconds, self.patience)))
                else:
                    call(lambda: messages.subscribe(channel))
                subscribed = True

            yield listen

    @contextmanager
    def pop(self, key: str, call: StoreCall) -> Iterator[Pop]:
        """Let a `with` block remove elements from the list `key`, as `Store.pop` describes. `call`: `Store.call`."""
        client = self.connect(self._settings.timeout + self.patience)

        def take(seconds: float) -> bytes | None:
            found = client.blpop([key], timeout=min(seconds, self.patience))
            return cast("tuple[bytes, bytes]", found)[1] if found else None

        try:
            yield lambda seconds: call(lambda: take(seconds))
        finally:
            client.close()

    def pause(self, seconds: float) -> None:
        self._check_thread()
        time.sleep(seconds)

    def _talk(self, exchange: Callable[[redis.Connection], T]) -> T:
        """Call `exchange` with an idle connection or a new one, and keep the connection for later calls unless an error
        broke it.
        """
        connection = self._borrow()
        try:
            reply = exchange(connection)
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
            # Not the pool's `make_connection`: it counts each connection ever created against the pool's limit.
            pool = client.connection_pool
            return cast(redis.Connection, pool.connection_class(**pool.connection_kwargs))
        if not client.connection_pool.owns_connection(connection):  # the connection leads to the former master
            connection.disconnect()
        # If the server has closed the connection, its socket is readable. Checking that costs a system call.
        if time.monotonic() - used > _FRESH:
            try:
                closed = connection.can_read(timeout=0)
            except redis.exceptions.ConnectionError:
                closed = True
            if closed:
                connection.disconnect()
        return connection

    def disconnect(self) -> None:
        """Close the idle connections, which lead to the old master after a failover. The next call then connects to the
        new master.
        """
        self.client.connection_pool.disconnect(inuse_connections=False)
        while True:
            try:
                self._idle.pop()[0].disconnect()
            except IndexError:
                return

    def close(self) -> None:
        if self._client is not None and self._pid == os.getpid():
            self._client.close()
            self.disconnect()
        self._client = None
