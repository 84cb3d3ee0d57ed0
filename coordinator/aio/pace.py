"""Keeps the loop answering while a thousand tasks begin, or go on, at the same moment."""

from __future__ import annotations

import asyncio
from collections import deque

_AT_ONCE = 32  # each takes about 50 us


class Pace:
    """Lets so many tasks go on in one turn of the loop; the others have the next turns."""

    def __init__(self) -> None:
        self._left = _AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        if self._left == _AT_ONCE:
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _next(self) -> None:
        self._left = _AT_ONCE
        while self._left and self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # else it was cancelled
                future.set_result(None)
                self._left -= 1
        if self._left < _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._next)
