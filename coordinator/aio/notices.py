"""One Redis connection that receives pub/sub messages for all tasks of an event loop. Each waiting task subscribes to a
channel.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import Context

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import TimeoutError as Late

from coordinator.aio.requests import Make, in_time
from coordinator.core.store.wire import pack

_NAME = "coordinator-notices"  # of its asyncio tasks: one that begins so may outlive the body of an async task
_PING = 1.0  # seconds between two pings, which detect a connection whose server is gone without an error


class Notices:
    """Subscribes the tasks of an event loop to Redis channels, and wakes a task when a message comes on its channel.

    A background task writes and reads, since a cancelled caller would close the connection for all others. Before it
    delivers a message it awaits `turn()`, so that many messages do not block the loop. `make` opens a connection;
    `timeout`: seconds to connect, and seconds without a reply after which the connection counts as broken.
    """

    def __init__(self, make: Make, timeout: float, turn: Callable[[], Awaitable[None]]) -> None:
        self._make, self._timeout, self._turn = make, timeout, turn
        self._listeners: defaultdict[bytes, set[Subscription]] = defaultdict(set)
        self._subscribed: set[bytes] = set()
        self._commands: list[bytes] = []
        self._wanted = asyncio.Event()
        self._unanswered = 0  # pings that have no reply yet
        self._serving: asyncio.Task[None] | None = None

    def join(self, listener: Subscription) -> None:
        """Subscribe `listener` to its channel. Its event `notified` is set once Redis has confirmed the subscription,
        then at each message, and when the connection breaks.
        """
        if not self._listeners[listener.channel]:
            self._send("SUBSCRIBE", listener.channel)
        self._listeners[listener.channel].add(listener)
        if listener.channel in self._subscribed:
            listener.notified.set()
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve(), name=_NAME, context=Context())

    def leave(self, listener: Subscription) -> None:
        """Stop notifying `listener`, and unsubscribe from its channel if no other listener is on it."""
        if listener in self._listeners.get(listener.channel, ()):
            self._listeners[listener.channel].discard(listener)
            if not self._listeners[listener.channel]:
                del self._listeners[listener.channel]
                self._subscribed.discard(listener.channel)
                self._send("UNSUBSCRIBE", listener.channel)

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    def _send(self, *command: str | bytes) -> None:
        self._commands.append(pack(*command))
        self._wanted.set()

    async def _serve(self) -> None:
        reason: Exception = Broken("the connection was closed")
        connection: AbstractConnection | None = None
        try:
            async with in_time(self._timeout):
                connection = await self._make()
            self._unanswered = 0
            async with asyncio.TaskGroup() as both:
                both.create_task(self._write(connection), name=_NAME)
                both.create_task(self._read(connection), name=_NAME)
        except* Exception as errors:
            [reason, *_] = errors.exceptions
        finally:
            listeners = [listener for several in self._listeners.values() for listener in several]
            self._listeners.clear()
            self._subscribed.clear()
            self._commands.clear()
            self._serving = None
            for listener in listeners:
                listener.error = reason
                listener.notified.set()
            if connection is not None:
                await connection.disconnect(nowait=True)

    async def _write(self, connection: AbstractConnection) -> None:
        while True:
            commands, self._commands = self._commands, []
            self._wanted.clear()
            await connection.send_packed_command(b"".join(commands), check_health=False)
            try:
                async with asyncio.timeout(_PING):
                    await self._wanted.wait()
            except TimeoutError:
                if self._unanswered * _PING > self._timeout:
                    raise Late(f"no answer to {self._unanswered} pings") from None
                self._unanswered += 1
                self._send("PING")

    async def _read(self, connection: AbstractConnection) -> None:
        while True:
            kind, channel, *_ = await connection.read_response()
            self._unanswered = 0
            if kind == b"subscribe" and channel in self._listeners:
                self._subscribed.add(channel)
            if kind in (b"message", b"subscribe"):
                await self._turn()
                for listener in self._listeners.get(channel, ()):
                    listener.notified.set()


class Subscription:
    """The subscription of one task to a Redis channel.

    `patience`: the most seconds that `listen` waits for a message; then the caller reads the awaited state itself.
    """

    def __init__(self, notices: Notices, channel: str, patience: float) -> None:
        self.channel = channel.encode()
        self.notified = asyncio.Event()
        self.error: Exception | None = None
        self._notices, self._patience = notices, patience
        self._joined = False

    async def listen(self, seconds: float) -> None:
        """Wait for a message on the channel, for at most `seconds`; the first call subscribes, and returns at once.

        Each wait is also limited to 60 to 100 % of `patience`, at random, so that a thousand tasks do not read Redis at
        the same moment. Raises the error of a broken connection; the next call subscribes again.
        """
        if not self._joined:
            self._joined = True
            self._notices.join(self)
        patience = min(seconds, self._patience * random.uniform(0.6, 1.0))
        try:
            async with asyncio.timeout(patience):
                await self.notified.wait()
        except TimeoutError:
            return
        self.notified.clear()
        if self.error is not None:
            error, self.error, self._joined = self.error, None, False
            raise error

    def leave(self) -> None:
        self._notices.leave(self)
