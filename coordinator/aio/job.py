"""The running job for the body of an async task: its methods that ask Redis are coroutines."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import NoReturn

from coordinator.core.jobs import current


class CurrentJob:
    """The running job, as `coordinator.CurrentJob`. What asks Redis is awaited, in a thread: it goes over the blocking
    connection of the process.
    """

    def __init__(self, job: current.CurrentJob) -> None:
        self.id, self.keys, self.fence = job.id, job.keys, job.fence
        self.attempt, self.undoing = job.attempt, job.undoing
        self._job = job

    @property
    def key(self) -> str:
        """The first key of the job; "" for a job in no lane."""
        return self._job.key

    @property
    def instant(self) -> datetime | None:
        """The time for which this run of a periodic entry was planned; None for any other job."""
        return self._job.instant

    async def check(self) -> None:
        """Raise LeaseLost if this attempt has lost its lease; see `coordinator.CurrentJob.check`."""
        await asyncio.to_thread(self._job.check)

    async def holds(self) -> bool:
        """True while this attempt has the lease of the job."""
        return await asyncio.to_thread(self._job.holds)

    async def progress(self, done: int, total: int) -> None:
        """Report that `done` of `total` pieces of work are done, as often as you like."""
        await asyncio.to_thread(self._job.progress, done, total)

    async def cool_down(self, seconds: float, quota: str | None = None) -> NoReturn:
        """Close the quotas of this job for so many seconds, and end this attempt by CoolDown."""
        await asyncio.to_thread(self._job.cool_down, seconds, quota)
        raise AssertionError("CurrentJob.cool_down always raises")


def current_job() -> CurrentJob | None:
    """The job for which the calling code runs; None outside the task of a job."""
    job = current.current_job()
    return None if job is None else CurrentJob(job)
