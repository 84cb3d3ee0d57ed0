"""One connection to Redis that many tasks use at once: requests go out as they come, replies come in their order.

It connects at the first use, and anew after it broke. A task that is cancelled meanwhile leaves its place to the reply,
which nobody hears. A reply that does not come breaks the connection, since the order of the others would be lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as Late

Make = Callable[[], Awaitable[AbstractConnection]]
_AT_ONCE = 16  # replies in one turn of the loop


class Wire:
    """`make` opens a connection that does not wait for replies by itself; `timeout`: seconds for each reply."""

    def __init__(self, make: Make, timeout: float) -> None:
        self._make, self._timeout = make, timeout
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._why: Exception = Broken("the connection was closed")
        self._waiting: deque[asyncio.Future[object]] = deque()
        self._opening = asyncio.Lock()

    async def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        """A reply or a ResponseError for each. Raises redis's ConnectionError or TimeoutError."""
        if self._connection is None:
            await self.open()
        replies = [await future for future in self.send(packed)]
        for reply in replies:
            if isinstance(reply, Broken | Late):
                raise reply
        return replies

    async def open(self) -> None:
        async with self._opening:
            if self._connection is not None:
                return
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._make()
            except TimeoutError as error:
                raise Late(f"no connection within {self._timeout:g} s") from error
            self._connection = connection
            self._why = Broken("the connection was closed")
            reading = self._read(connection)
            self._reader = asyncio.get_running_loop().create_task(reading, context=Context())
        self.opened()

    def opened(self) -> None:
        """There is a new connection."""

    def send(self, packed: Sequence[bytes]) -> list[asyncio.Future[object]]:
        """Send at once, on an open connection. The futures have replies or errors; none of them raises."""
        if self._connection is None or (writer := self._connection._writer) is None:
            raise self._why
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[object]] = [loop.create_future() for _ in packed]
        self._waiting.extend(futures)
        # `send_packed_command` closes the connection where its task is cancelled: under all others, too.
        writer.write(b"".join(packed))
        watch = loop.call_later(self._timeout, self._late, self._connection)
        futures[-1].add_done_callback(lambda _: watch.cancel())
        return futures

    def hear(self, reply: object) -> None:
        future = self._waiting.popleft()
        if not future.done():  # else its task was cancelled
            future.set_result(reply)

    def broke(self, error: Exception) -> None:
        """Tell all that wait."""
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_result(error)

    def drop(self, why: Exception | None = None) -> None:
        """Close the connection; the next request opens another one."""
        if self._reader is not None:
            self._why = why or self._why
            self._reader.cancel()

    async def close(self) -> None:
        self.drop()
        if self._reader is not None:
            with suppress(asyncio.CancelledError):
                await self._reader

    def _late(self, connection: AbstractConnection) -> None:
        if connection is self._connection and self._waiting:
            self.drop(Late("Timeout reading from socket"))

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
        finally:
            self._connection = None
            self.broke(self._why)
            await connection.disconnect(nowait=True)
