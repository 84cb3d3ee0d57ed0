"""Connections to Redis for asyncio, with the methods of the blocking `coordinator.core.store.connections`.

All tasks of an event loop share a few connections: some for commands, and one that is subscribed to all channels. Only
a task that waits for a lock has its own connection. These methods are called from greenlets (`bridge.run`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, cast

import redis
from greenlet import getcurrent
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from coordinator.aio.bridge import Bridge, awaited
from coordinator.aio.notices import Notices, Subscription
from coordinator.aio.requests import Make, RequestPool
from coordinator.core.address import through
from coordinator.core.settings import Settings
from coordinator.core.store import connections as blocking
from coordinator.core.store.connections import Connections, Listener, Pop, StoreCall
from coordinator.core.store.sentinel import LATE
from coordinator.core.store.wire import Arg, pack

blocking.awaiting = getcurrent, Bridge


_AT_ONCE = 32  # calls that may continue in one iteration of the event loop; each takes about 50 us


class _OfLoop:
    """All connections of one event loop. `make` opens a connection; `timeout`: seconds for each command."""

    def __init__(self, make: Make, timeout: float) -> None:
        self.requests, self.notices = RequestPool(make, timeout), Notices(make, timeout, self.turn)
        self._starts = asyncio.Semaphore(_AT_ONCE)
        self._end: AsyncIterator[None] | None = None

    async def turn(self) -> None:
        """Wait until at most 31 other calls continue in this iteration of the event loop, since a thousand that
        continue at the same moment would block the loop.
        """
        if self._end is None:
            self._end = self._at_end()
            await anext(self._end)
        await self._starts.acquire()
        asyncio.get_running_loop().call_soon(self._starts.release)

    async def close(self) -> None:
        await self.requests.close()
        await self.notices.close()

    async def _at_end(self) -> AsyncIterator[None]:
        """Close the loop's connections at its end: `asyncio.run` closes this generator after all tasks have ended."""
        try:
            yield
        finally:
            await self.close()


class AioConnections(Connections):
    """The connections of a process to Redis for asyncio, one set for each event loop.

    `patience`: seconds after which a call that waits for a message reads the awaited state itself, in case a message
    was lost. It is longer than for threads, since regular pings detect a broken connection.
    """

    patience = 5.0
    threaded = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._loops: dict[asyncio.AbstractEventLoop, _OfLoop] = {}
        self._born = os.getpid()

    @property
    def here(self) -> _OfLoop:
        if self._born != os.getpid():  # this process was forked: the connections belong to the parent
            self._born, self._loops = os.getpid(), {}
        loop = asyncio.get_running_loop()
        parts = self._loops.get(loop)
        if parts is None:
            for closed in [known for known in list(self._loops) if known.is_closed()]:
                self._loops.pop(closed, None)
            parts = self._loops[loop] = _OfLoop(self._make, self._settings.timeout)
        return parts

    def ask(self, packed: bytes) -> Any:
        [reply] = self.ask_many([packed])
        if isinstance(reply, redis.exceptions.ResponseError):
            raise reply
        return reply

    def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        return awaited(self.here.requests.ask_many(packed))

    def execute(self, command: str, *args: Arg) -> Any:
        return self._read(command, self.ask(pack(*command.split(), *args)))

    def execute_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        sent = list(commands)
        packed = [pack(*command) for command in sent]
        replies = self.ask_many([pack("MULTI"), *packed, pack("EXEC")] if atomic else packed)
        if error := next((reply for reply in replies if isinstance(reply, redis.exceptions.ResponseError)), None):
            raise error
        results = cast("list[object]", replies[-1]) if atomic else replies
        return [self._read(str(command[0]), reply) for command, reply in zip(sent, results, strict=True)]

    @contextmanager
    def listening(self, channel: str, call: StoreCall) -> Iterator[Listener]:
        listener = Subscription(self.here.notices, channel, self.patience)
        try:
            yield lambda seconds: call(lambda: awaited(listener.listen(seconds)))
        finally:
            listener.leave()

    @contextmanager
    def pop(self, key: str, call: StoreCall) -> Iterator[Pop]:
        alone = RequestPool(self._make, self._settings.timeout + self.patience)

        def take(seconds: float) -> bytes | None:
            [reply] = awaited(alone.ask_many([pack("BLPOP", key, min(seconds, self.patience))]))
            if isinstance(reply, redis.exceptions.ResponseError):
                raise reply
            return cast("list[bytes]", reply)[1] if reply else None

        try:
            yield lambda seconds: call(lambda: take(seconds))
        finally:
            awaited(alone.close())

    def pause(self, seconds: float) -> None:
        awaited(asyncio.sleep(seconds))

    def disconnect(self) -> None:
        awaited(self.here.requests.close())

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        here = self._loops.get(asyncio.get_running_loop())  # kept in the table: a call may be connecting through it
        if here is not None:
            await here.close()

    async def _make(self) -> AbstractConnection:
        """Open a connection to Redis. With Sentinel, look up the master first; raise redis's ConnectionError if the
        server reached is not the master.
        """
        kind, options = self._options
        began = time.monotonic()
        if self.server.moves:
            host, port = await asyncio.to_thread(self.server.find)
            options = {**options, "host": host, "port": port}
        if self.login:  # in a thread, since it may read a file or call a service
            *user, password = await asyncio.to_thread(self.login.get_credentials)
            options = {**options, "username": user[0] if user else None, "password": password}
        connection = kind(**options)
        try:
            await connection.connect()
            await connection.send_command("CLIENT", "SETNAME", self.name)
            with suppress(redis.exceptions.ResponseError):
                await connection.read_response()
            if self.server.moves:
                await connection.send_command("HELLO")
                role = await connection.read_response()
                late = time.monotonic() - began > LATE
                if b"master" not in role or (late and await asyncio.to_thread(self.server.find) != (host, port)):
                    raise redis.ConnectionError(f"{host}:{port} is not the master any more")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _read(self, command: str, reply: object) -> object:
        """Convert the reply to `command` into the type that redis-py's client returns."""
        callback = self._callbacks.get(command)
        return callback(reply) if callback else reply

    @cached_property
    def _options(self) -> tuple[Callable[..., AbstractConnection], dict[str, object]]:
        """The class of redis-py's connection to open, and the arguments for it. No timeout for replies is among them,
        since `requests.in_time` limits each command. Protocol 2 is set, because RESP3 delivers the messages of
        subscriptions as push messages.
        """
        url, timeout = self._settings.url, self._settings.timeout
        self.server.client(timeout)  # raises SettingsError for options of the URL that redis-py does not know
        parts = through(url)
        options = dict[str, object](parse_url(parts.servers if parts else url))
        options.pop("max_connections", None)  # an option of pools, not of a connection
        kind = cast("type[AbstractConnection]", options.pop("connection_class", Connection))
        if kind is not UnixDomainSocketConnection:
            options["socket_keepalive"] = True
        options |= {"socket_connect_timeout": timeout, "socket_timeout": None, "protocol": 2}
        return kind, options | {"retry": Retry(NoBackoff(), 0)}

    @cached_property
    def _callbacks(self) -> dict[str, Callable[[object], object]]:
        return cast("dict[str, Callable[[object], object]]", redis.asyncio.Redis(protocol=2).response_callbacks)
