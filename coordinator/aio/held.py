"""A lease and a grab for asyncio: calls that ask Redis are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Self

from coordinator.aio.bridge import run
from coordinator.aio.connections import AioConnections
from coordinator.aio.verbs import Awaiting, verb
from coordinator.grabs import grab
from coordinator.jobs.current import current_job
from coordinator.jobs.instances import State, Winner
from coordinator.locks import leases
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
        """True once it is known that the lease is no longer ours."""
        return self._lease.lost.is_set()

    async def check(self) -> None:
        """Raise LeaseLost if the lease is no longer ours; StoreUnavailable if nobody can say."""
        job = current_job()
        if job is not None and job.id == self.job_id:  # the job's own lease, which asks over a blocking connection
            await asyncio.to_thread(self._lease.check)
        else:
            await run(self._lease.check)


class Grab(Awaiting):
    """The part of one process in an instance: `coordinator.Grab`, awaited.

    `await coordinator.grab(…)` competes, and returns the grab. `async with coordinator.grab(…) as grab` also completes
    it on leaving, fails it on an exception, and with `on_losing="wait"` waits on entering.
    """

    check = verb(grab.Grab.check)
    complete = verb(grab.Grab.complete)
    fail = verb(grab.Grab.fail)
    wait = verb(grab.Grab.wait)

    def __init__(self, connections: Callable[[], AioConnections], compete: Callable[[], Awaitable[grab.Grab]]) -> None:
        super().__init__(connections, lambda: self._grab)
        self._compete = compete
        self._made: grab.Grab | None = None

    def __await__(self) -> Generator[object, None, Self]:
        return self._begin().__await__()

    async def _begin(self) -> Self:
        if self._made is None:
            self._made = await self._compete()
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
        """True if this process works on the instance."""
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
        """The fence that goes with the winner's writes."""
        return self._grab.fence

    @property
    def attempt(self) -> int:
        """The number of times that the instance was won."""
        return self._grab.attempt

    @property
    def result(self) -> Json:
        """The JSON that the winner passed to `complete`."""
        return self._grab.result

    @result.setter
    def result(self, value: Json) -> None:
        self._grab.result = value

    @property
    def reason(self) -> Json:
        """The reason why the work failed."""
        return self._grab.reason
