"""The connections of one process to Redis, as `coordinator.store.connections`, for the tasks of asyncio's loops.

Two connections serve a whole loop: one carries all requests, the other brings all notices. Only a task that waits for
a lock has one of its own. All calls here come through `bridge.run`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import redis
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from coordinator.address import sentinels_of
from coordinator.aio.bridge import awaited
from coordinator.aio.notices import Ear, Notices
from coordinator.aio.pace import Pace
from coordinator.aio.wire import Make, Wire
from coordinator.settings import Settings
from coordinator.store.connections import Call, Connections, Listener
from coordinator.store.sentinel import LATE
from coordinator.store.wire import Arg, pack


class _OfLoop:
    """The parts that belong to one loop."""

    def __init__(self, make: Make, timeout: float) -> None:
        self.requests, self.notices, self.pace = Wire(make, timeout), Notices(make, timeout), Pace()


class AioConnections(Connections):
    """`patience` is longer than that of threads: a notice is lost only with its connection, which is looked after."""

    patience = 5.0

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._loops: dict[asyncio.AbstractEventLoop, _OfLoop] = {}
        self._born = os.getpid()

    @property
    def here(self) -> _OfLoop:
        if self._born != os.getpid():  # forked: the connections are the parent's
            self._born, self._loops = os.getpid(), {}
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for former in [one for one in list(self._loops) if one.is_closed()]:
                self._loops.pop(former, None)
            found = self._loops[loop] = _OfLoop(self._make, self._settings.timeout)
        return found

    def ask(self, packed: bytes, eager: bool = False) -> Any:
        [reply] = self.ask_many([packed])
        if isinstance(reply, redis.exceptions.ResponseError):
            raise reply
        return reply

    def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        return awaited(self.here.requests.ask_many(packed))

    def execute(self, command: str, *args: Arg) -> Any:
        return self._read(command, self.ask(pack(*command.split(), *args)))

    def execute_many(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[Any]:
        asked = list(commands)
        packed = [pack(*command) for command in asked]
        replies = self.ask_many([pack("MULTI"), *packed, pack("EXEC")] if atomic else packed)
        if error := next((reply for reply in replies if isinstance(reply, redis.exceptions.ResponseError)), None):
            raise error
        told = cast("list[object]", replies[-1]) if atomic else replies
        return [self._read(str(command[0]), reply) for command, reply in zip(asked, told, strict=True)]

    @contextmanager
    def listening(self, channel: str, call: Call) -> Iterator[Listener]:
        ear = Ear(self.here.notices, channel, self.patience)
        try:
            yield lambda seconds: call(lambda: awaited(ear.listen(seconds)))
        finally:
            ear.leave()

    @contextmanager
    def pop(self, key: str, call: Call) -> Iterator[Callable[[float], bool]]:
        wire = Wire(self._make, self._settings.timeout + self.patience)

        def take(seconds: float) -> bool:
            [reply] = awaited(wire.ask_many([pack("BLPOP", key, min(seconds, self.patience))]))
            if isinstance(reply, redis.exceptions.ResponseError):
                raise reply
            return reply is not None

        try:
            yield lambda seconds: call(lambda: take(seconds))
        finally:
            wire.drop()

    def pause(self, seconds: float) -> None:
        awaited(asyncio.sleep(seconds))

    def disconnect(self) -> None:
        self.here.requests.drop()
        self.here.notices.drop()

    async def aclose(self) -> None:
        """Close those of the running loop."""
        here = self._loops.get(asyncio.get_running_loop())  # it stays: a call that connects just now finds it
        if here is not None:
            await here.requests.close()
            await here.notices.close()

    async def _make(self) -> AbstractConnection:
        """Through Sentinel, each finds the master anew, and leaves a server that is none."""
        kind, options = self._options
        began = time.monotonic()
        if self.server.moves:
            host, port = await asyncio.to_thread(self.server.find)
            options = {**options, "host": host, "port": port}
        connection = kind(**options)
        try:
            await connection.connect()
            if self.server.moves:
                await connection.send_command("HELLO")
                told = await connection.read_response()
                late = time.monotonic() - began > LATE
                if b"master" not in told or (late and await asyncio.to_thread(self.server.find) != (host, port)):
                    raise redis.ConnectionError(f"{host}:{port} is not the master any more")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _read(self, command: str, reply: object) -> object:
        """As redis-py's client reads it."""
        callback = self._callbacks.get(command)
        return callback(reply) if callback else reply

    @cached_property
    def _options(self) -> tuple[Callable[..., AbstractConnection], dict[str, object]]:
        """The class of a connection, and its options. A wire watches over its replies itself. In protocol 2, notices
        come as replies do.
        """
        url, timeout = self._settings.url, self._settings.timeout
        self.connect(timeout)  # as it does, raises SettingsError for options that redis-py does not know
        through = sentinels_of(url)
        given = dict[str, object](parse_url(through.servers if through else url))
        given.pop("max_connections", None)  # there is one
        kind = cast("type[AbstractConnection]", given.pop("connection_class", Connection))
        if kind is not UnixDomainSocketConnection:
            given["socket_keepalive"] = True
        given |= {"socket_connect_timeout": timeout, "socket_timeout": None, "protocol": 2}
        return kind, given | {"retry": Retry(NoBackoff(), 0)}

    @cached_property
    def _callbacks(self) -> dict[str, Callable[[object], object]]:
        return cast("dict[str, Callable[[object], object]]", redis.asyncio.Redis(protocol=2).response_callbacks)
