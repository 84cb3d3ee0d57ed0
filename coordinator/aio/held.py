"""A lease and a grab as asyncio has them: what asks Redis is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Self

from coordinator.aio.bridge import run
from coordinator.jobs.current import current_job
from coordinator.jobs.instances import State, Winner
from coordinator.lanes import grab, leases
from coordinator.store.values import Json


class Lease:
    """The holder's proof: `fence` goes with its writes, `check()` before an act that must not happen twice."""

    def __init__(self, lease: leases.Lease) -> None:
        self.key = lease.key
        self.job_id = lease.job_id
        self.fence = lease.fence
        self._lease = lease

    @property
    def lost(self) -> bool:
        """Is it known that it is no longer ours?"""
        return self._lease.lost.is_set()

    async def check(self) -> None:
        """Raises LeaseLost when it is no longer ours; StoreUnavailable when nobody can say."""
        job = current_job()
        if job is not None and job.id == self.job_id:  # the job's own lease: a thread asks for it
            await asyncio.to_thread(self._lease.check)
        else:
            await run(self._lease.check)


class Grab:
    """One process's part in an instance: `coordinator.Grab`, awaited.

    `await coordinator.grab(…)` competes, and gives it. `async with coordinator.grab(…) as grab` also completes it on
    leaving, fails it on an exception, and with `on_losing="wait"` waits on entering.
    """

    def __init__(self, compete: Callable[[], grab.Grab]) -> None:
        self._compete = compete
        self._made: grab.Grab | None = None

    def __await__(self) -> Generator[object, None, Self]:
        return self._begin().__await__()

    async def _begin(self) -> Self:
        if self._made is None:
            self._made = await run(self._compete)
        return self

    async def __aenter__(self) -> Self:
        await self._begin()
        await run(self._grab.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run(self._grab.__exit__, kind, error, trace)

    @property
    def _grab(self) -> grab.Grab:
        if self._made is None:
            raise RuntimeError("await coordinator.grab(…) first")
        return self._made

    @property
    def won(self) -> bool:
        """Is it ours to work on?"""
        return self._grab.won

    @property
    def state(self) -> State:
        """running, complete or failed for the winner; complete, incomplete, waiting or failed for a loser."""
        return self._grab.state

    @property
    def winner(self) -> Winner | None:
        """The process that won, also where that is this one."""
        return self._grab.winner

    @property
    def fence(self) -> int:
        """It goes with the winner's writes."""
        return self._grab.fence

    @property
    def attempt(self) -> int:
        """The number of times that the instance was won."""
        return self._grab.attempt

    @property
    def result(self) -> Json:
        """The JSON that the winner completed it with."""
        return self._grab.result

    @result.setter
    def result(self, value: Json) -> None:
        self._grab.result = value

    @property
    def reason(self) -> Json:
        """Why it failed."""
        return self._grab.reason

    async def check(self) -> None:
        """Raises LeaseLost where the instance is no longer ours, StoreUnavailable where nobody can say."""
        await run(self._grab.check)

    async def complete(self, result: Json = None) -> None:
        """Say that the work is done; the others hear `result`. Raises LeaseLost, StoreUnavailable."""
        await run(self._grab.complete, result)

    async def fail(self, reason: Json = None) -> None:
        """Say that the work failed: the instance may be grabbed again. Raises LeaseLost, StoreUnavailable."""
        await run(self._grab.fail, reason)

    async def wait(self, timeout: float | None = None) -> State:
        """Wait for the winner's end: `complete`, `failed` or `abandoned`. Raises WaitTimeout after so many seconds."""
        return await run(self._grab.wait, timeout)
