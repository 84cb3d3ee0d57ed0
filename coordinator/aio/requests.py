"""Sends the requests of all tasks of a loop over a few connections; each request has a connection for itself.

A cancelled call closes its connection, so that no reply is left over for another call. redis-py's pool would lose the
place of a call that is cancelled while it returns its connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as Late

Make = Callable[[], Awaitable[AbstractConnection]]
MOST = 8  # connections
_FRESH = 0.5  # seconds in which an idle connection is trusted to be open
_SECOND_LOOK = 0.05  # seconds in which a loop that was blocked reads the replies that came meanwhile
_AT_ONCE = 64  # replies in one turn of the loop


class RequestPool:
    """The connections for requests. `make` opens one without a timeout; `timeout`: seconds for each request."""

    def __init__(self, make: Make, timeout: float) -> None:
        self._make, self._timeout = make, timeout
        self._room = asyncio.Semaphore(MOST)
        self._idle: list[tuple[AbstractConnection, float]] = []
        self._failures, self._why = 0, Exception()

    async def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        """Return a reply or a ResponseError for each. Raises redis's ConnectionError or TimeoutError.

        When a call fails, the calls that wait for a connection fail at once, not one after another.
        """
        failures = self._failures
        async with self._room:
            if self._failures > failures:
                raise self._why
            try:
                async with in_time(self._timeout):
                    return await self._exchange(packed)
            except (Broken, Late) as error:
                self._failures, self._why = self._failures + 1, error
                raise

    async def close(self) -> None:
        """Close the idle connections; the next request opens another one."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.disconnect(nowait=True)

    async def _exchange(self, packed: Sequence[bytes]) -> list[object]:
        connection = await self._borrow()
        try:
            await connection.send_packed_command(b"".join(packed), check_health=False)
            replies: list[object] = []
            for _ in packed:
                replies.append(await _reply_or_error(connection))
                if len(replies) % _AT_ONCE == 0:  # reading a buffered reply does not yield to the loop
                    await asyncio.sleep(0)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append((connection, time.monotonic()))
        return replies

    async def _borrow(self) -> AbstractConnection:
        """Take an idle connection, or open one. A connection that has something to read was closed by the server."""
        while self._idle:
            connection, used = self._idle.pop()
            try:
                can_read = getattr(connection, "can_read", None) or connection.can_read_destructive  # before redis-py 8
                if time.monotonic() - used < _FRESH or not await can_read():
                    return connection
            except BaseException as error:
                await connection.disconnect(nowait=True)
                if not isinstance(error, Broken):
                    raise
            await connection.disconnect(nowait=True)
        return await self._make()


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Raise redis's TimeoutError after so many seconds. A loop that was blocked reads first what came meanwhile."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            late = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + _SECOND_LOOK))
            try:
                yield
            finally:
                late.cancel()
    except TimeoutError as error:
        raise Late(f"no answer within {seconds:g} s") from error


async def _reply_or_error(connection: AbstractConnection) -> object:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
