"""A lease and a grab for asyncio: the methods that call Redis are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Self

from coordinator.aio.bridge import run
from coordinator.aio.connections import AioConnections
from coordinator.aio.verbs import Awaiting, verb
from coordinator.core.grabs import grab
from coordinator.core.jobs.current import current_job
from coordinator.core.jobs.instances import State, Winner
from coordinator.core.locks import leases
from coordinator.core.store.values import Json


class Lease:
    """The lease of a lock. Send `fence` with each write, so that the store can refuse the writes of a former holder;
    call `check()` before an act that must not happen twice.
    """

    def __init__(self, lease: leases.Lease) -> None:
        self.key = lease.key
        self.job_id = lease.job_id
        self.fence = lease.fence
        self._lease = lease

    @property
    def lost(self) -> bool:
        """True once this process knows that it has lost the lease. To ask Redis, call `check`."""
        return self._lease.lost.is_set()

    async def check(self) -> None:
        """Raise LeaseLost if this process has lost the lease, and StoreUnavailable if Redis does not answer."""
        job = current_job()
        # The lease of the running job is checked over a blocking connection, so in a thread.
        if job is not None and job.id == self.job_id:
            await asyncio.to_thread(self._lease.check)
        else:
            await run(self._lease.check)


class Grab(Awaiting):
    """The attempt of one process to win an instance of a key: `coordinator.Grab` with coroutines as methods.

    `await coordinator.grab(…)` makes the attempt, and returns the grab. `async with coordinator.grab(…) as grab` also
    calls `complete` at the end of the block, `fail` on an exception, and at the beginning, with `on_losing="wait"`,
    `wait` if another process has won.
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
        """True if this process won the instance, and so works on it."""
        return self._grab.won

    @property
    def state(self) -> State:
        """The state of the grab: `running`, `complete` or `failed` for the winner; `complete`, `incomplete`, `waiting`
        or `failed` for a loser.
        """
        return self._grab.state

    @property
    def winner(self) -> Winner | None:
        """The process that won the instance, perhaps this one."""
        return self._grab.winner

    @property
    def fence(self) -> int:
        """The fence that the winner sends with each write, so that the store can refuse a former winner's writes."""
        return self._grab.fence

    @property
    def attempt(self) -> int:
        """How many times the instance was won so far, by any process."""
        return self._grab.attempt

    @property
    def result(self) -> Json:
        """The JSON that the winner passed to `complete`; None before that."""
        return self._grab.result

    @result.setter
    def result(self, value: Json) -> None:
        self._grab.result = value

    @property
    def reason(self) -> Json:
        """The JSON that the winner passed to `fail`: why the work failed."""
        return self._grab.reason
