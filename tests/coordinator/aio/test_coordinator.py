"""The calls of a coordinator, awaited: they mean, give and raise the same, and the loop goes on meanwhile."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from coordinator import (
    Coordinator,
    InvalidJob,
    JobFailed,
    SettingsError,
    ShuttingDown,
    StoreUnavailable,
    UnknownJob,
    WaitTimeout,
    aio,
)
from coordinator.errors import CoordinatorError
from tests.coordinator.aio.awaiting import awaiting, until
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels

MANY = 1000
# Seconds of this thread's own processor time between two turns of the loop: half of it on a processor of its own, but
# the test processes share two.
LATE = 0.04


@asynccontextmanager
async def turns() -> AsyncIterator[list[float]]:
    """How long the turns of the loop take, in seconds of processor time: other processes do not count."""
    took: list[float] = []

    async def look() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            took.append(time.thread_time() - before)

    gc.collect()
    gc.freeze()  # else the objects of a thousand test modules are looked through meanwhile
    looking = asyncio.create_task(look())
    try:
        yield took
    finally:
        looking.cancel()
        gc.unfreeze()


def channels(press: Any) -> set[bytes]:
    store = press.coordinator.store
    return set(store.client.execute_command("PUBSUB CHANNELS", store.key("done", "*")))


def connections(press: Any) -> int:
    return len(press.coordinator.store.client.client_list())


def test_a_job_is_submitted_read_waited_for_and_gives_its_result(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        first = await jobs.submit("k", press.print.s(1))
        assert first.outcome == "started"
        second, third = await jobs.submit_many([("k", press.print.s(2)), ("j", press.print.s(3), {"priority": 1})])
        assert (second.position, (await jobs.job(third.job_id)).priority) == (1, 1)
        assert (await jobs.lane("k")).jobs == (first.job_id, second.job_id)
        assert [lane.key for lane in await jobs.lanes()] == ["j", "k"]
        assert [node.name for node in await jobs.nodes()] == ["one"]
        assert (await jobs.counts())["created"] == 3
        assert await jobs.why(second.job_id)
        waits = [asyncio.create_task(jobs.wait(one.job_id)) for one in (first, third)]
        await until(lambda: len(channels(press)) == 2)
        await asyncio.to_thread(press.finish_all)
        assert [(await one).state for one in waits] == ["succeeded"] * 2
        assert await jobs.get(second.job_id) == "detail"
        with pytest.raises(CoordinatorError, match="ask the coordinator"):
            first.get()

    awaiting(press, body)


def test_what_is_wrong_is_told_as_by_the_other_coordinator(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        with pytest.raises(InvalidJob):
            await jobs.submit("", press.print.s(1))
        with pytest.raises(InvalidJob):
            await jobs.submit("k", press.print.s(1), priority=1000)
        with pytest.raises(UnknownJob):
            await jobs.wait("nobody")
        sent = await jobs.submit("k", press.print.s(1))
        with pytest.raises(WaitTimeout):
            await jobs.wait(sent.job_id, 0.05)
        assert await jobs.cancel(sent.job_id, why="no") == "cancelled"
        with pytest.raises(JobFailed):
            await jobs.get(sent.job_id)
        assert await jobs.retry(sent.job_id) == "ready"
        press.coordinator.close()
        with pytest.raises(ShuttingDown):
            await jobs.submit("k", press.print.s(1))
        await jobs.cancel(sent.job_id)

    awaiting(press, body)
    with pytest.raises(SettingsError, match=r"takes a coordinator\.Coordinator, not Celery"):
        aio.Coordinator(press.app)
    with pytest.raises(SettingsError, match="belong to the coordinator"):
        aio.Coordinator(press.coordinator, prefix="other")


def test_a_task_at_work_submits_also_where_its_process_ends(press: Any) -> None:
    async def submit() -> str:
        async with aio.Coordinator(press.coordinator) as jobs:
            return (await jobs.submit("k", press.print.s(1))).outcome

    def submitting() -> str:
        return asyncio.run(submit())

    task = press.app.task(submitting, name="press.submit", shared=False)
    press.coordinator.close()
    assert task.apply().get() == "started"
    press.finish_all()


def test_a_plain_client_has_its_own_settings(press: Any) -> None:
    settings = press.coordinator.settings

    async def body() -> None:
        async with aio.Coordinator(url=settings.url, prefix=settings.prefix) as jobs:
            sent = await jobs.submit("k", {"task": "press.print", "args": [1], "options": {}})
            assert (await jobs.job(sent.job_id)).task == "press.print"

    asyncio.run(body())
    press.finish_all()


def test_a_thousand_waits_share_one_connection_and_the_loop_answers_throughout(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        sent = await jobs.submit_many([(f"k/{n}", press.print.s(n)) for n in range(MANY)])
        before = await asyncio.to_thread(connections, press)
        async with turns() as took:
            waits = [asyncio.create_task(jobs.wait(one.job_id, 60)) for one in sent]
            await until(lambda: len(channels(press)) == MANY)
            assert await asyncio.to_thread(connections, press) <= before + 1
            ends = [(one.job_id, "all at once", "me") for one in sent]
            await asyncio.to_thread(press.coordinator.store.step_many, "job_cancel", ends)
            found = [await one for one in waits]
        assert {job.state for job in found} == {"cancelled"}
        assert max(took) < LATE, sorted(took)[-5:]
        assert not await asyncio.to_thread(channels, press)

    awaiting(press, body)


def test_a_bulk_of_submits_lets_the_loop_answer_throughout(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        asked = [(f"k/{n % 10}", press.print.s(n)) for n in range(10 * MANY)]
        async with turns() as took:
            await asyncio.sleep(0)  # it begins to look
            await jobs.submit_many(asked)
        assert max(took) < LATE, sorted(took)[-5:]

    awaiting(press, body)


def test_a_cancelled_wait_leaves_no_subscription_and_disturbs_no_other(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        sent = [await jobs.submit(f"k/{n}", press.print.s(n)) for n in range(20)]
        waits = [asyncio.create_task(jobs.wait(one.job_id)) for one in sent for _ in range(2)]
        for pause in range(40):  # at each point of its way
            for _ in range(pause):
                await asyncio.sleep(0)
            if pause % 2:
                waits[pause].cancel()
        await until(lambda: len(channels(press)) == 20)
        for one in waits[:20:2]:
            one.cancel()
        await until(lambda: len(channels(press)) == 10)
        await asyncio.to_thread(press.finish_all)
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [job.state for job in ends[20::2] if not isinstance(job, BaseException)] == ["succeeded"] * 10
        assert sum(isinstance(one, asyncio.CancelledError) for one in ends) == 30
        assert not await asyncio.to_thread(channels, press)

    awaiting(press, body)


def test_redis_away_is_told_and_its_return_is_used_at_once(own_redis: RedisServer) -> None:
    host = Coordinator(url=own_redis.url(0), prefix="away", timeout=2)

    async def body() -> None:
        async with aio.Coordinator(host) as jobs:
            assert await jobs.counts()
            sent = await jobs.submit("k", {"task": "t", "args": [], "options": {}}, unknown="wait")
            waiting = asyncio.create_task(jobs.wait(sent.job_id))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own_redis.kill)
            with pytest.raises(StoreUnavailable):
                await waiting
            with pytest.raises(StoreUnavailable):
                await jobs.submit("k", {"task": "t", "args": [], "options": {}}, unknown="wait")
            await asyncio.to_thread(own_redis.start)
            assert (await jobs.job(sent.job_id)).state == "ready"
            with pytest.raises(WaitTimeout):
                await jobs.wait(sent.job_id, 0.1)

    asyncio.run(body())


def test_a_redis_that_keeps_silent_is_given_up_after_the_timeout(proxy: Proxy, prefix: str) -> None:
    async def body() -> None:
        async with aio.Coordinator(url=proxy.url(), prefix=prefix, timeout=0.5) as jobs:
            assert await jobs.counts()
            proxy.swallow()
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await jobs.counts()
            assert time.monotonic() - began < 5
            proxy.heal()
            assert await jobs.counts()

    asyncio.run(body())


def test_it_follows_the_master_of_sentinels(tmp_path: Path) -> None:
    with Sentinels(tmp_path, secret=True) as sentinels:
        first = sentinels.servers[0]

        async def body() -> None:
            async with aio.Coordinator(url=sentinels.url(0), prefix="sentinels", timeout=1) as jobs:
                task = {"task": "t", "args": [], "options": {}}
                sent = await jobs.submit("k", task, unknown="wait")
                waiting = asyncio.create_task(jobs.wait(sent.job_id))
                await asyncio.to_thread(sentinels.settle)
                with first.client() as client:
                    assert client.wait(2, 10_000) == 2  # both replicas have the job
                await asyncio.to_thread(first.kill)
                with pytest.raises(StoreUnavailable):
                    await waiting
                async with asyncio.timeout(30):
                    while True:
                        with suppress(StoreUnavailable):
                            assert (await jobs.job(sent.job_id)).state == "ready"
                            break
                        await asyncio.sleep(0.1)
                assert await jobs.cancel(sent.job_id) == "cancelled"

        asyncio.run(body())


def test_it_is_made_before_the_settings_are_known() -> None:
    app = Celery("early", set_as_current=False)
    jobs = aio.Coordinator(Coordinator(app))
    with pytest.raises(SettingsError, match="no Redis for the coordinator"):
        asyncio.run(jobs.counts())


def test_each_loop_has_connections_of_its_own(press: Any) -> None:
    jobs = aio.Coordinator(press.coordinator)

    async def body() -> None:
        assert await jobs.counts()
        await jobs.aclose()
        assert await jobs.counts()
        await jobs.aclose()

    for _ in range(2):
        asyncio.run(body())


def test_where_jobs_run_in_place_they_do_so_here_too(
    press: Any, coordinator_jobs: Callable[[Coordinator], Any]
) -> None:
    in_place = coordinator_jobs(press.coordinator)

    async def body(jobs: aio.Coordinator) -> None:
        sent = await jobs.submit("k", press.print.s(5))
        assert await jobs.get(sent.job_id) == 5
        async with jobs.lock("k"):
            pass

    awaiting(press, body)
    assert [job.key for job in in_place.submitted] == ["k"]


def test_a_call_that_is_not_awaited_is_refused(press: Any) -> None:
    jobs = aio.Coordinator(press.coordinator)

    async def body() -> None:
        with pytest.raises(CoordinatorError, match="is to be awaited"):
            jobs._twin.counts()

    asyncio.run(body())
