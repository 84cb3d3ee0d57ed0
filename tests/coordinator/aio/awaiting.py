"""Runs the calls of a test in a loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator import aio


def awaiting(press: Any, body: Callable[[aio.Coordinator], Awaitable[object]]) -> object:
    async def all_of_it() -> object:
        async with aio.Coordinator(press.coordinator) as jobs:
            return await asyncio.wait_for(body(jobs), 120)

    return asyncio.run(all_of_it())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)
