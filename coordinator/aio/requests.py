"""A pool of Redis connections for all tasks of an event loop. While a request is under way, it alone uses its
connection.

A cancelled request closes its connection, so that its reply does not reach another request. redis-py's pool is not
used: it would lose a slot for each request that is cancelled while it returns its connection.
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
MOST = 8  # open connections of a pool
_FRESH = 0.5  # seconds for which an idle connection is assumed to be open, without a check
_CATCH_UP = 0.05  # seconds, after a timeout, to read replies that arrived while the event loop was blocked
_AT_ONCE = 64  # replies that are read before other tasks of the loop may run


class RequestPool:
    """A pool of Redis connections for requests. `make` opens a connection, without a time limit of its own; `timeout`:
    seconds for each request, connecting included.
    """

    def __init__(self, make: Make, timeout: float) -> None:
        self._make, self._timeout = make, timeout
        self._room = asyncio.Semaphore(MOST)
        self._idle: list[tuple[AbstractConnection, float]] = []
        self._failures, self._last_error = 0, Exception()

    async def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        """Send commands, each packed for the wire, in one pipeline; return a reply or a ResponseError for each. Raises
        redis's ConnectionError or TimeoutError.

        When a request fails so, all requests that wait for a connection raise the same error at once.
        """
        failures = self._failures
        async with self._room:
            if self._failures > failures:
                raise self._last_error
            try:
                async with in_time(self._timeout):
                    return await self._exchange(packed)
            except (Broken, Late) as error:
                self._failures, self._last_error = self._failures + 1, error
                raise

    async def close(self) -> None:
        """Close the idle connections of the pool; the next request opens a new one."""
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
                if len(replies) % _AT_ONCE == 0:  # reading a buffered reply does not yield to the event loop
                    await asyncio.sleep(0)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append((connection, time.monotonic()))
        return replies

    async def _borrow(self) -> AbstractConnection:
        """Take an idle connection from the pool, or open one. An idle connection on which data can be read is
        discarded: the server has closed it.
        """
        while self._idle:
            connection, used = self._idle.pop()
            try:
                # `can_read_destructive` is the method's name before redis-py 8.
                can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
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
    """Raise redis's TimeoutError if the `async with` block takes longer than `seconds`. If the event loop was blocked
    for that long, 0.05 seconds remain in which the block can read replies that have arrived.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            late = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + _CATCH_UP))
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
