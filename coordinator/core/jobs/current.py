"""`current_job()`: the job that a task runs for, as seen in the body of the task (in its thread or greenlet).

    job = current_job()
    write(record, fence=job.fence)

When the lease of a job is lost, to a node that was cut off for example, nothing stops the body of the task by itself:
it can call `job.check()`, which then raises LeaseLost.
"""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from typing import Any, NamedTuple, NoReturn, Protocol

from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.jobs.validation import instant_of, limit, near, shown
from coordinator.errors import CoolDown, InvalidJob, LeaseLost, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

_QUIET = 2.0  # seconds without progress reports after one failed: a Redis that hangs would delay the job at each report


class Owner(Protocol):
    """The methods of `coordinator.core.lanes.client.LaneClient` that a job calls about its lease, its progress and its
    quotas.
    """

    def holds(self, job_id: str, token: str) -> bool: ...

    def progress(self, job_id: str, token: str, done: int, total: int) -> object: ...

    def quotas_of(self, job_id: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Undoing:
    """The failure of a job, for the task that rolls the job back.

    `args`, `kwargs`, `error`: of the step that failed. `result`: of the step before, None if there was none; `results`:
    of all earlier steps. `error["parts"]`: how the sub-results ended, where the attempt was parked.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: ErrorRecord | None
    result: Any
    results: tuple[Any, ...] = ()


class Behind(NamedTuple):
    """Why a published task cannot end before the running job: `task`, which is the published task or runs
    before it, needs `lane`, which the job keeps. `seen`: it is the published task itself, a job in that lane, so that
    Redis notices a wait of the running job for it.
    """

    task: str
    lane: str
    seen: bool


@dataclass(slots=True)
class CurrentJob:
    """The running job, as its task sees it. Send `fence` with each write to a store, so that the store can refuse the
    writes of an attempt that a later one has replaced.

    `attempt`: the number of this attempt, from 1. `lanes`: the client by which the job asks Redis about its lease; None
    where no Redis is used. `undoing`: the failure, while the task runs as rollback, else None. `mute`: ids of tasks
    that the body published and that store no result. `behind`: ids of published tasks that cannot end before this job,
    since they need one of its lanes, and why. `ttl`: seconds for which the lease lasts unless it is renewed.
    """

    id: str
    keys: tuple[str, ...]
    token: str
    fence: int
    attempt: int
    lanes: Owner | None = field(repr=False)
    undoing: Undoing | None = None
    mute: set[str] = field(default_factory=set, repr=False)
    behind: dict[str, Behind] = field(default_factory=dict, repr=False)
    ttl: float = field(default=0.0, repr=False)
    _written: float = field(default=0.0, repr=False)
    _quiet_until: float = field(default=0.0, repr=False)
    _confirmed: float = field(default_factory=time.monotonic, repr=False)

    @property
    def key(self) -> str:
        """The first key of the job; "" for a job in no lane."""
        return self.keys[0] if self.keys else ""

    @property
    def instant(self) -> datetime | None:
        """The time for which this run of a periodic entry was planned. None for a job that is no such run, or that an
        operator started by hand.
        """
        return instant_of(self.id)

    def check(self) -> None:
        """Raise LeaseLost if this attempt has lost its lease: another runner has claimed the job, or the job has ended.

        While Redis does not answer, the call waits until the lease would be over that Redis confirmed last, and then
        raises StoreUnavailable.
        """
        if not self.holds():
            raise LeaseLost(self.key, self.fence)

    def holds(self) -> bool:
        """True while this attempt has the lease of the job. Where Redis does not answer, it waits and raises as `check`
        does.
        """
        pause = 0.05
        while self.lanes:
            asked_at = time.monotonic()  # taken before the request, so that the lease ends here no later than in Redis
            try:
                ours = self.lanes.holds(self.id, self.token)
            except StoreUnavailable:
                left = self._confirmed + self.ttl - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(pause, left))
                pause = min(1.0, pause * 2)
            else:
                self._confirmed = asked_at if ours else self._confirmed
                return ours
        return True

    def progress(self, done: int, total: int) -> None:
        """Write to the record of the job that `done` of `total` pieces of work are done.

        Call it as often as you like: Redis gets at most five reports a second, and the last one (`done >= total`). If
        Redis does not answer or refuses a report, the job goes on, and sends no report for two seconds. Raises
        TypeError for numbers that are not whole.
        """
        done, total = index(done), index(total)
        now = time.monotonic()
        if self.lanes and now >= self._quiet_until and (now - self._written >= 0.2 or done >= total):
            self._written = now
            try:
                self.lanes.progress(self.id, self.token, done, total)
            except (StoreUnavailable, StoreRefused) as error:
                self._quiet_until = time.monotonic() + _QUIET
                logger.info("job %s: the progress of the job could not be reported: %s", self.id, error)

    def cool_down(self, seconds: float, quota: str | None = None) -> NoReturn:
        """Close all quotas of this job, or the one that is named, for so many seconds, and end this attempt: by
        CoolDown, which the task lets pass. The job goes back to its place, and goes on once its quotas are open again.
        That counts neither as an attempt nor as a conflict; only `max_lifetime` still ends the job.

        For a service that says "too many requests": `job.cool_down(float(answer.headers["Retry-After"]))`. Raises
        InvalidJob for a job that does not use the quota.
        """
        seconds = limit("seconds", seconds)
        names = self.lanes.quotas_of(self.id) if self.lanes and not self.undoing else []
        if quota is not None and quota not in names:
            raise InvalidJob(f"job {self.id} does not use the quota {shown(quota)}{near(quota, names)}")
        if not names:
            raise InvalidJob(f"job {self.id} uses no quota to cool down: submit it with uses='…'")
        raise CoolDown(seconds, quota or "")


working: ContextVar[CurrentJob | None] = ContextVar("coordinator_job", default=None)


def current_job() -> CurrentJob | None:
    """The job for which the calling code runs; None outside the task of a job."""
    return working.get()
