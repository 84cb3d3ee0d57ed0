"""One connection for the requests of many tasks."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as Broken

from coordinator.aio.wire import Wire
from coordinator.store.wire import pack
from tests.harness.redis import RedisServer


async def opened(server: RedisServer) -> Connection:
    connection = Connection(port=server.port, protocol=2)
    await connection.connect()
    return connection


class Heard(Wire):
    """Counts the replies that it hears in each turn of the loop."""

    turn = 0
    heard: Counter[int]

    def hear(self, reply: Any) -> None:
        self.heard[self.turn] += 1
        super().hear(reply)


def test_replies_that_came_together_are_heard_in_several_turns_of_the_loop(redis_server: RedisServer) -> None:
    async def count(wire: Heard) -> None:
        while True:
            wire.turn += 1
            await asyncio.sleep(0)

    async def body() -> Heard:
        wire = Heard(lambda: opened(redis_server), 20)
        wire.heard = Counter[int]()
        counting = asyncio.create_task(count(wire))
        assert await wire.ask_many([pack("ECHO", str(n)) for n in range(500)]) == [str(n).encode() for n in range(500)]
        counting.cancel()
        await wire.close()
        return wire

    heard = asyncio.run(body()).heard
    assert heard.total() == 500
    assert max(heard.values()) <= 16


def test_a_cancelled_request_leaves_its_reply_to_nobody_and_the_next_ones_in_order(redis_server: RedisServer) -> None:
    async def body() -> None:
        wire = Wire(lambda: opened(redis_server), 20)
        asked = [asyncio.create_task(wire.ask_many([pack("ECHO", str(n)), pack("ECHO", f"{n}b")])) for n in range(40)]
        for one in asked[::2]:
            await asyncio.sleep(0)
            one.cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert found[1::2] == [[str(n).encode(), f"{n}b".encode()] for n in range(1, 40, 2)]
        assert sum(isinstance(one, asyncio.CancelledError) for one in found) == 20
        await wire.close()

    asyncio.run(body())


def test_requests_on_a_connection_that_just_broke_are_told_and_nothing_is_logged(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        wire = Wire(lambda: opened(redis_server), 20)
        await wire.open()
        assert wire._connection
        assert wire._connection._writer
        wire._connection._writer.transport.abort()
        found = await asyncio.gather(*(wire.ask_many([pack("PING")]) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(one, Broken) for one in found)
        assert await wire.ask_many([pack("ECHO", "again")]) == [b"again"]
        await wire.close()

    asyncio.run(body())
    assert not caplog.records
