"""One connection on which all tasks of a loop hear the notices that they wait for, each on a channel of its own."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from coordinator.aio.wire import Make, Wire
from coordinator.store.wire import pack

_PING = 1.0  # seconds between two looks whether the connection still stands


class Notices(Wire):
    """Two kinds of replies come in: what was asked for, in its order, and notices."""

    def __init__(self, make: Make, timeout: float) -> None:
        super().__init__(make, timeout)
        self._ears: defaultdict[bytes, set[Ear]] = defaultdict(set)

    async def join(self, ear: Ear) -> None:
        """Subscribe. From here the ear hears each notice, or that the connection broke."""
        self._ears[ear.channel].add(ear)
        await self.ask_many([pack("SUBSCRIBE", ear.channel)])

    def leave(self, ear: Ear) -> None:
        """Where nobody else listens there, the subscription ends."""
        if ear.channel in self._ears:
            self._ears[ear.channel].discard(ear)
            if not self._ears[ear.channel]:
                del self._ears[ear.channel]
                if self._connection is not None:
                    self.send([pack("UNSUBSCRIBE", ear.channel)])

    def opened(self) -> None:
        self._ping(self._connection)

    def _ping(self, connection: object) -> None:
        """A connection that swallows all would keep silent for ever."""
        if self._connection is None or connection is not self._connection:
            return
        if self._ears:
            self.send([pack("PING")])
        asyncio.get_running_loop().call_later(_PING, self._ping, connection)

    def hear(self, reply: object) -> None:
        if isinstance(reply, list) and reply[0] == b"message":
            for ear in self._ears.get(reply[1], ()):
                ear.heard.set()
        else:
            super().hear(reply)

    def rests(self) -> bool:
        return super().rests() and not self._ears

    def broke(self, error: Exception) -> None:
        super().broke(error)
        ears, self._ears = self._ears, defaultdict(set)
        for ear in (ear for several in ears.values() for ear in several):
            ear.error = error
            ear.heard.set()


class Ear:
    """One task's subscription."""

    def __init__(self, notices: Notices, channel: str, patience: float) -> None:
        self.channel = channel.encode()
        self.heard = asyncio.Event()
        self.error: Exception | None = None
        self._notices, self._patience = notices, patience
        self._joined = False

    async def listen(self, seconds: float) -> None:
        """See `Store.listening`. A thousand that look for themselves do not do so at one moment."""
        if not self._joined:
            self.error = None
            self.heard.clear()
            await self._notices.join(self)
            self._joined = True
            return
        try:
            async with asyncio.timeout(min(seconds, self._patience * random.uniform(0.6, 1.0))):
                await self.heard.wait()
        except TimeoutError:
            return
        self.heard.clear()
        if self.error is not None:
            error, self.error, self._joined = self.error, None, False
            raise error

    def leave(self) -> None:
        self._notices.leave(self)
