"""One connection to Redis that many tasks use at once: requests go out as they come, replies come in their order.

It connects at the first use, and anew after it broke. A task that is cancelled meanwhile leaves its place to the reply,
which nobody hears. A reply that does not come breaks the connection, also where its task was cancelled: the order of
the others would be lost, and a connection that went silent would stay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as Late

Make = Callable[[], Awaitable[AbstractConnection]]
_AT_ONCE = 16  # replies in one turn of the loop
_SECOND_LOOK = 0.05  # seconds in which a loop that was blocked reads what came meanwhile


class Wire:
    """`make` opens a connection that does not wait for replies by itself; `timeout`: seconds for each reply."""

    def __init__(self, make: Make, timeout: float) -> None:
        self._make, self._timeout = make, timeout
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._why: Exception = Broken("the connection was closed")
        self._waiting: deque[tuple[asyncio.Future[object], float]] = deque()  # and when each reply is due
        self._watch: asyncio.TimerHandle | None = None
        self._opening = asyncio.Lock()
        self._failures = 0
        self._dropped = self._ends = False  # `_ends`: the loop has cancelled all its tasks, as asyncio.run does

    async def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        """A reply or a ResponseError for each. Raises redis's ConnectionError or TimeoutError."""
        if self._connection is None:
            await self.open()
        try:
            replies = [await future for future in self.send(packed)]
        finally:
            if self._ends and self.rests():  # nobody is left to close it
                self.drop()
        for reply in replies:
            if isinstance(reply, Broken | Late):
                raise reply
        return replies

    async def open(self) -> None:
        """All that wait for an attempt hear that it failed: else each would make its own, one after another."""
        failures = self._failures
        async with self._opening:
            if self._connection is not None:
                return
            if self._failures > failures:
                raise self._why
            try:
                connection = await self._connected()
            except Exception as error:
                self._failures, self._why = self._failures + 1, error
                raise
            self._connection, self._dropped = connection, False
            self._why = Broken("the connection was closed")
            reading = self._read(connection)
            self._reader = asyncio.get_running_loop().create_task(reading, context=Context())
        self.opened()

    async def _connected(self) -> AbstractConnection:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._make()
        except TimeoutError as error:
            raise Late(f"no connection within {self._timeout:g} s") from error

    def opened(self) -> None:
        """There is a new connection."""

    def send(self, packed: Sequence[bytes]) -> list[asyncio.Future[object]]:
        """Send at once, on an open connection. The futures have replies or errors; none of them raises."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[object]] = [loop.create_future() for _ in packed]
        writer = None if self._connection is None else self._connection._writer
        if writer is None or writer.is_closing():  # broken, and the reader has not heard of it yet
            for future in futures:
                future.set_result(self._why)
            return futures
        due = loop.time() + self._timeout
        self._waiting.extend((future, due) for future in futures)
        # `send_packed_command` closes the connection where its task is cancelled: under all others, too.
        writer.write(b"".join(packed))
        if self._watch is None:
            self._watch = loop.call_at(due, self._look)
        return futures

    def hear(self, reply: object) -> None:
        future, _ = self._waiting.popleft()
        if not future.done():  # else its task was cancelled
            future.set_result(reply)

    def broke(self, error: Exception) -> None:
        """Tell all that wait."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_result(error)

    def rests(self) -> bool:
        """Does nobody wait for it?"""
        return not self._waiting

    def drop(self, why: Exception | None = None) -> None:
        """Close the connection; the next request opens another one."""
        if self._reader is not None:
            self._why, self._dropped = why or self._why, True
            # A task that is cancelled before its first turn never comes to its `finally`.
            asyncio.get_running_loop().call_soon(self._reader.cancel)

    async def close(self) -> None:
        self.drop()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    def _look(self, seen: object = None) -> None:
        """Is the oldest reply overdue, at a second look too? `seen`: its future at the first one."""
        self._watch = None
        if not self._waiting:
            return
        loop, (oldest, due) = asyncio.get_running_loop(), self._waiting[0]
        if due > loop.time():
            self._watch = loop.call_at(due, self._look)
        elif oldest is seen:
            self.drop(Late("Timeout reading from socket"))
        else:
            self._watch = loop.call_later(_SECOND_LOOK, self._look, oldest)

    async def _read(self, connection: AbstractConnection) -> None:
        heard = 0
        try:
            while True:
                try:
                    reply = await connection.read_response(disconnect_on_error=False)
                except ResponseError as refusal:
                    reply = refusal
                self.hear(reply)
                heard += 1
                if heard % _AT_ONCE == 0:  # replies that were read already come without giving way
                    await asyncio.sleep(0)
        except (Broken, Late) as error:
            self._why = error
        except OSError as error:
            self._why = Broken(f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self._ends = self._ends or not self._dropped
            raise
        finally:
            self._connection = None
            self.broke(self._why)
            await connection.disconnect(nowait=True)
