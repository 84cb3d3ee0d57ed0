"""Locks and grabs of asyncio's tasks."""

import asyncio
from typing import Any

import pytest

from coordinator import Locked, WouldDeadlock, aio
from tests.coordinator.aio.awaiting import awaiting, until


def test_a_lock_is_held_by_one_task_at_a_time_in_the_order_of_their_coming(press: Any) -> None:
    seen: list[tuple[int, int]] = []

    async def hold(jobs: aio.Coordinator, number: int) -> None:
        async with jobs.lock("stock", blocking_timeout=None if number % 2 else 20) as lease:
            await lease.check()
            seen.append((number, lease.fence))
            await asyncio.sleep(0.01)
            assert seen[-1] == (number, lease.fence), "another one came in"
            assert not lease.lost

    async def body(jobs: aio.Coordinator) -> None:
        async with jobs.lock("stock"):
            with pytest.raises(Locked):
                async with asyncio.timeout(5):
                    await asyncio.create_task(hold_at_once(jobs))
            holders = []
            for number in range(4):
                holders.append(asyncio.create_task(hold(jobs, number)))
                await until(lambda number=number: press.coordinator.lane("stock").length == number + 2)
        await asyncio.gather(*holders)
        assert [number for number, _ in seen] == [0, 1, 2, 3]
        assert sorted(fence for _, fence in seen) == [fence for _, fence in seen]
        with pytest.raises(ZeroDivisionError):
            async with jobs.lock("stock"):
                raise ZeroDivisionError
        async with jobs.lock("stock"):
            with pytest.raises(WouldDeadlock):
                async with jobs.lock("stock", blocking_timeout=60):
                    pass

    async def hold_at_once(jobs: aio.Coordinator) -> None:
        async with jobs.lock("stock"):
            pass

    awaiting(press, body)


def test_a_cancelled_task_gives_up_its_lock_and_its_place_in_line(press: Any) -> None:
    async def hold(jobs: aio.Coordinator, wait: float) -> None:
        async with jobs.lock("stock", ttl=30, blocking_timeout=wait):
            await asyncio.sleep(60)

    async def body(jobs: aio.Coordinator) -> None:
        def length() -> int:
            return int(press.coordinator.lane("stock").length)

        holder = asyncio.create_task(hold(jobs, 0))
        await until(lambda: length() == 1)
        waiter = asyncio.create_task(hold(jobs, 60))
        await until(lambda: length() == 2)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert await asyncio.to_thread(length) == 1
        holder.cancel()
        await asyncio.wait([holder])
        assert await asyncio.to_thread(length) == 0
        for turn in range(30):  # cancelled at each point of its taking
            one = asyncio.create_task(hold(jobs, 60))
            for _ in range(turn):
                await asyncio.sleep(0)
            one.cancel()
            await asyncio.wait([one])
        assert await asyncio.to_thread(length) == 0

    awaiting(press, body)


def test_a_grab_is_won_by_one_task_and_the_others_hear_its_end(press: Any) -> None:
    async def body(jobs: aio.Coordinator) -> None:
        won = await jobs.grab("report", 1, "first")
        lost = await jobs.grab("report", 1, "second")
        assert (won.won, lost.won, lost.state) == (True, False, "waiting")
        assert lost.winner
        assert lost.winner.identifier == "first"
        waiting = asyncio.create_task(lost.wait(20))
        await won.check()
        await won.complete({"pages": 3})
        assert (await waiting, lost.result) == ("complete", {"pages": 3})
        async with jobs.grab("report", 2, "first") as second:
            second.result = 7
        assert (await jobs.grab("report", 2, "second")).result == 7
        with pytest.raises(ZeroDivisionError):
            async with jobs.grab("report", 3, "first"):
                raise ZeroDivisionError("no")
        again = await jobs.grab("report", 3, "second")
        assert (again.won, again.attempt) == (True, 2)
        await again.fail("no")

    awaiting(press, body)
