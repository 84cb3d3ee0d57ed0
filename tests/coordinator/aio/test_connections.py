"""The connections of asyncio's loops: how they begin, break and end."""

import asyncio
import gc
import time
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest
from redis.asyncio.connection import Connection

from coordinator import Coordinator, SettingsError, StoreUnavailable, aio
from coordinator.aio.requests import MOST, RequestPool
from coordinator.core.store.wire import pack
from tests.coordinator.aio.awaiting import until
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


def test_calls_that_find_no_connection_wait_for_one_attempt_together(proxy: Proxy, prefix: str) -> None:
    async def body() -> None:
        async with aio.Coordinator(url=proxy.url(), prefix=prefix, timeout=0.5) as jobs:
            proxy.swallow()
            began = time.monotonic()
            found = await asyncio.gather(*(jobs.counts() for _ in range(100)), return_exceptions=True)
            assert all(isinstance(one, StoreUnavailable) for one in found)
            assert time.monotonic() - began < 20
            proxy.heal()
            assert await jobs.counts()

    asyncio.run(body())


def test_a_connection_that_keeps_silent_is_given_up_also_where_each_call_is_cancelled_sooner(
    proxy: Proxy, prefix: str
) -> None:
    async def body() -> None:
        async with aio.Coordinator(url=proxy.url(), prefix=prefix, timeout=0.5) as jobs:
            assert await jobs.counts()
            proxy.swallow()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await jobs.counts()
            proxy.heal()  # what is open stays silent
            async with asyncio.timeout(60):
                while True:
                    with suppress(TimeoutError, StoreUnavailable):
                        async with asyncio.timeout(0.3):
                            assert await jobs.counts()
                            break

    asyncio.run(body())


def test_a_connection_for_notices_that_keeps_silent_is_replaced(press: Any, proxy: Proxy) -> None:
    sent = press.coordinator.submit("k", press.print.s(1))
    store = press.coordinator.store
    channel = store.key("done", sent.id)

    def subscribed() -> bool:
        return bool(store._client.pubsub_numsub(channel)[0][1])

    async def wait(jobs: aio.Coordinator) -> None:
        while True:
            with suppress(StoreUnavailable):
                await jobs.wait(sent.id)

    async def body() -> None:
        async with aio.Coordinator(url=proxy.url(), prefix=press.coordinator.settings.prefix, timeout=0.5) as jobs:
            waiting = asyncio.create_task(wait(jobs))
            await until(subscribed)
            proxy.swallow()
            proxy.heal()  # what is open stays silent
            await asyncio.to_thread(store._client.client_kill_filter, _type="pubsub")
            assert not await asyncio.to_thread(subscribed)
            await until(subscribed)
            waiting.cancel()

    asyncio.run(body())
    press.coordinator.cancel(sent.id)


def test_a_cancelled_request_leaves_its_reply_to_nobody(redis_server: RedisServer) -> None:
    async def opened() -> Connection:
        connection = Connection(port=redis_server.port, protocol=2)
        await connection.connect()
        return connection

    async def body() -> None:
        requests = RequestPool(opened, 20)
        for number in range(3 * MOST):
            asked = asyncio.create_task(requests.ask_many([pack("ECHO", f"{number} lost")]))
            for _ in range(number):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
            assert await requests.ask_many([pack("ECHO", str(number))]) == [str(number).encode()]
        await requests.close()

    asyncio.run(body())


def test_a_loop_that_was_blocked_for_longer_than_the_timeout_hears_its_replies(redis_server: RedisServer) -> None:
    async def body() -> None:
        async with aio.Coordinator(url=redis_server.url(0), timeout=1) as jobs:
            assert await jobs.counts()
            asked = asyncio.create_task(jobs.counts())
            requests = jobs._connections.here.requests
            while requests._idle:
                await asyncio.sleep(0)
            time.sleep(1.5)
            assert await asked

    asyncio.run(body())


def test_closing_disturbs_no_call_that_connects_at_the_moment(redis_server: RedisServer, prefix: str) -> None:
    """It is done, or fails; it does not hang, and its connection is closed with the next `aclose`."""
    jobs = aio.Coordinator(url=redis_server.url(0), prefix=prefix)

    async def call() -> None:
        with suppress(StoreUnavailable):
            await jobs.counts()

    async def body() -> None:
        for turns in range(40):
            asked = asyncio.create_task(call())
            for _ in range(turns):
                await asyncio.sleep(0)
            await jobs.aclose()
            async with asyncio.timeout(60):
                await asked
            await jobs.aclose()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())


def test_the_end_of_a_loop_closes_also_what_its_last_tasks_opened(press: Any) -> None:
    jobs = aio.Coordinator(press.coordinator)

    async def hold(name: str) -> None:
        async with jobs.lock(name):
            await asyncio.sleep(60)

    async def body() -> asyncio.AbstractEventLoop:
        holders.extend(asyncio.create_task(hold(str(number))) for number in range(5))
        while len(press.coordinator.lanes()) < 5:
            await asyncio.sleep(0.01)
        return asyncio.get_running_loop()

    holders: list[asyncio.Task[None]] = []
    client = press.coordinator.store._client

    def connected() -> set[str]:
        return {one["id"] for one in client.client_list()}

    before = connected()
    loop = asyncio.run(body())
    wait_until(lambda: connected() <= before, what=lambda: f"{client.client_list()}, before: {before}")
    assert not press.coordinator.lanes()
    assert not asyncio.all_tasks(loop)


def test_loops_that_ended_are_forgotten(redis_server: RedisServer, prefix: str) -> None:
    jobs = aio.Coordinator(url=redis_server.url(0), prefix=prefix)

    async def body() -> ref[asyncio.AbstractEventLoop]:
        assert await jobs.counts()
        return ref(asyncio.get_running_loop())

    loops = [asyncio.run(body()) for _ in range(5)]
    gc.collect()
    assert [loop() for loop in loops[:-1]] == [None] * 4


def test_options_of_the_address_are_taken_and_refused_as_by_the_other_coordinator(
    redis_server: RedisServer, prefix: str
) -> None:
    async def ask(options: str) -> dict[str, int]:
        async with aio.Coordinator(url=f"{redis_server.url(0)}?{options}", prefix=prefix) as jobs:
            return await jobs.counts()

    assert asyncio.run(ask("max_connections=5&health_check_interval=10"))
    for options in ("nonsense=5", "max_connections=many"):
        with pytest.raises(SettingsError) as refused:
            asyncio.run(ask(options))
        with pytest.raises(SettingsError) as before:
            Coordinator(url=f"{redis_server.url(0)}?{options}", prefix=prefix).counts()
        assert str(refused.value) == str(before.value)
