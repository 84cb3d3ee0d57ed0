"""The connections of one process to Redis: send commands, read replies, wait for messages.

Each process creates its own client; a fork creates a new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import redis

from coordinator.errors import CoordinatorError
from coordinator.store.sentinel import Server
from coordinator.store.wire import Arg, reply_or_error

if TYPE_CHECKING:
    from coordinator.settings import Settings

_FRESH = 0.5  # seconds in which an idle connection is trusted to be open
Listener = Callable[[float], None]
Pop = Callable[[float], bytes | None]
awaiting: tuple[Callable[[], object], type] | None = (
    None  # returns the current greenlet; the type of greenlet in which no call may block
)
T = TypeVar("T")


class StoreCall(Protocol):
    """The type of `Store.call`, which runs a function and translates redis-py's errors into ours."""

    def __call__(self, ask: Callable[[], T], /) -> T: ...


class Connections:
    """Connects at the first use. All but `listening` and `pop` raise redis-py's own errors.

    `patience`: the longest wait for a message, in seconds; then the waiter checks the state itself.
    """

    patience = 1.0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.server = Server(settings.url, settings.timeout, "{" + settings.prefix + "}:", settings.source("url"))
        self._client: redis.Redis | None = None
        self._idle: list[tuple[redis.Connection, float]] = []
        self._pid = 0

    def _check_thread(self) -> None:
        """Raises CoordinatorError inside a call of `coordinator.aio`: its loop would stand still."""
        if awaiting is not None and isinstance(awaiting[0](), awaiting[1]):
            raise CoordinatorError("this call would block the loop of asyncio: it asks Redis past coordinator.aio")

    @property
    def client(self) -> redis.Redis:
        self._check_thread()
        if self._client is None or self._pid != os.getpid():
            self._client = self.connect(self._settings.timeout)
            self._idle = []
            self._pid = os.getpid()
        return self._client

    def connect(self, timeout: float) -> redis.Redis:
        """Create a separate client, for calls that block up to `timeout` seconds."""
        self._check_thread()
        return self.server.client(timeout)

    def ask(self, packed: bytes) -> Any:
        """The reply to one packed command, as Redis gives it.

        The hot path: it bypasses redis-py's client and its pool.
        """

        def exchange(connection: redis.Connection) -> Any:
            connection.send_packed_command([packed], check_health=False)
            return connection.read_response()

        return self._talk(exchange)

    def ask_many(self, packed: Sequence[bytes]) -> list[Any]:
        """Send packed commands in one round trip; a reply or an error for each."""

        def exchange(connection: redis.Connection) -> list[Any]:
            connection.send_packed_command([b"".join(packed)], check_health=False)
            return [reply_or_error(connection) for _ in packed]

        return self._talk(exchange)

    def execute(self, command: str, *args: Arg) -> Any:
        """The reply to one command, as redis-py reads it."""
        return self.client.execute_command(command, *args)

    def execute_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """Run commands in one round trip; `atomic`: as a transaction. Raises the first error among the replies."""
        pipeline = self.client.pipeline(transaction=atomic)
        for command in commands:
            pipeline.execute_command(*command)
        replies = pipeline.execute(raise_on_error=False)  # else redis-py puts words of its own before those of Redis
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    @contextmanager
    def listening(self, channel: str, call: StoreCall) -> Iterator[Listener]:
        """See `Store.listening`."""
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
        """See `Store.pop`."""
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
        """Run one exchange on an idle connection, and keep that unless it broke."""
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
            # `make_connection` would count each connection ever created against the pool's bound.
            pool = client.connection_pool
            return cast(redis.Connection, pool.connection_class(**pool.connection_kwargs))
        if not client.connection_pool.owns_connection(connection):  # it leads to the former master
            connection.disconnect()
        # A connection that the server closed is readable. The check costs a system call.
        if time.monotonic() - used > _FRESH:
            try:
                closed = connection.can_read(timeout=0)
            except redis.exceptions.ConnectionError:
                closed = True
            if closed:
                connection.disconnect()
        return connection

    def disconnect(self) -> None:
        """Close the idle connections. After a failover they lead to the old master; the next call connects to the new
        one.
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
