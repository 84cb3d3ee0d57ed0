"""The connections of one process to Redis: they carry commands and bring replies, and a thread may wait on them.

A client is made per process: after a fork, anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

import redis

from coordinator.settings import Settings
from coordinator.store.sentinel import Server
from coordinator.store.wire import Arg, exchange_awake, reply_or_error

_SOON = 0.0003  # seconds in which an answer is worth waiting for awake
_FRESH = 0.5  # seconds in which an idle connection is trusted to be open
Listener = Callable[[float], None]
T = TypeVar("T")


class Call(Protocol):
    """Runs a function; gives redis's errors a name of ours: `Store.call`."""

    def __call__(self, ask: Callable[[], T], /) -> T: ...


class Connections:
    """Cheap to make: connects at the first use. All but `listening` and `pop` raise redis's own errors.

    `patience`: after so many seconds, one who waits for a notice looks for himself.
    """

    patience = 1.0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.server = Server(settings.url, settings.timeout)
        self._client: redis.Redis | None = None
        self._idle: list[tuple[redis.Connection, float]] = []
        self._pid = 0
        self.soon = False  # did the last answer come within _SOON?

    @property
    def client(self) -> redis.Redis:
        if self._client is None or self._pid != os.getpid():
            self._client = self.connect(self._settings.timeout)
            self._idle = []
            self._pid = os.getpid()
        return self._client

    def connect(self, timeout: float) -> redis.Redis:
        """A client of its own, for calls that block up to `timeout` seconds."""
        return self.server.client(timeout)

    def ask(self, packed: bytes, eager: bool = False) -> Any:
        """The reply to one packed command, as Redis gives it.

        The hot path: one request on a connection of our own, without what a general client does around it. A processor
        that went to sleep needs 50 us and more to wake, nearly as long as Redis needs for the answer. So an eager
        caller stays awake and looks for it, giving way to whoever else can run, as long as Redis answers that soon: one
        late answer, and the next is waited for asleep.
        """

        def exchange(connection: redis.Connection) -> Any:
            sent = time.perf_counter()
            if not (eager and self.soon and exchange_awake(connection, packed, _SOON)):
                connection.send_packed_command([packed], check_health=False)
            reply = connection.read_response()
            self.soon = time.perf_counter() - sent < _SOON
            return reply

        return self._talk(exchange)

    def ask_many(self, packed: Sequence[bytes]) -> list[Any]:
        """A reply or an error for each, in one round trip."""

        def exchange(connection: redis.Connection) -> list[Any]:
            connection.send_packed_command([b"".join(packed)], check_health=False)
            return [reply_or_error(connection) for _ in packed]

        return self._talk(exchange)

    def execute(self, command: str, *args: Arg) -> Any:
        """The reply to one command, as redis-py reads it."""
        return self.client.execute_command(command, *args)

    def execute_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        """As `execute`, in one round trip; `atomic`: as a transaction. Raises the first error among the replies."""
        pipeline = self.client.pipeline(transaction=atomic)
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute()

    @contextmanager
    def listening(self, channel: str, call: Call) -> Iterator[Listener]:
        """See `Store.listening`."""
        subscribed = False
        with call(lambda: self.client.pubsub(ignore_subscribe_messages=True)) as notices:

            def listen(seconds: float) -> None:
                nonlocal subscribed
                before, subscribed = subscribed, False
                if before:
                    call(lambda: notices.get_message(timeout=min(seconds, self.patience)))
                else:
                    call(lambda: notices.subscribe(channel))
                subscribed = True

            yield listen

    @contextmanager
    def pop(self, key: str, call: Call) -> Iterator[Callable[[float], bool]]:
        """See `Store.pop`."""
        client = self.connect(self._settings.timeout + self.patience)
        try:
            yield lambda seconds: call(lambda: client.blpop([key], timeout=min(seconds, self.patience)) is not None)
        finally:
            client.close()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _talk(self, exchange: Callable[[redis.Connection], T]) -> T:
        """Ask on a connection of our own, which is kept unless it broke."""
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

    def disconnect(self) -> None:
        """Close the idle connections. After a failover behind one address they lead to the old master: the next call
        connects anew, and reaches the new one.
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
