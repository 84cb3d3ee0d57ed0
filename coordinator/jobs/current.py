"""The job that this thread (or greenlet) works on now."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from typing import Any, NamedTuple, Protocol

from coordinator.errors import LeaseLost, StoreRefused, StoreUnavailable
from coordinator.jobs.spec import ErrorRecord
from coordinator.jobs.validation import instant_of

logger = logging.getLogger(__name__)

_QUIET = 2.0  # seconds without progress reports after an error: a Redis that hangs would delay the job at each report


class Owner(Protocol):
    """The methods of `coordinator.lanes.client.LaneClient` by which a job asks whether it still has its lease."""

    def holds(self, job_id: str, token: str) -> bool: ...

    def progress(self, job_id: str, token: str, done: int, total: int) -> object: ...


@dataclass(frozen=True, slots=True)
class Undoing:
    """The failure that a rollback undoes: the failed step's arguments, the error, and the result before it, if any.

    `results`: of all earlier steps. `error["parts"]`: how the sub-results ended, where the attempt was parked.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: ErrorRecord | None
    result: Any
    results: tuple[Any, ...] = ()


class Behind(NamedTuple):
    """A result waits for this task in this lane. `seen`: Redis sees it wait, since it is to be that of a job there."""

    task: str
    lane: str
    seen: bool


@dataclass(slots=True)
class CurrentJob:
    """A task's view of its job; `fence` belongs in every write that must not come late.

    `undoing` is set while the task is the job's rollback. `mute`: ids of published tasks that store no result.
    `behind`: ids of published tasks that wait for a task in one of the job's lanes, with its name and lane. `ttl`:
    seconds for which the lease lasts unless it is renewed.
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
        return self.keys[0]

    @property
    def instant(self) -> datetime | None:
        """The instant of the tick that this job is; None of another job, and of an entry that runs out of turn."""
        return instant_of(self.id)

    def check(self) -> None:
        """Raise LeaseLost if another runner has the job, or it ended.

        While Redis does not answer, the call waits until the last confirmed lease must be over; then it raises
        StoreUnavailable, since nobody can say.
        """
        if not self.holds():
            raise LeaseLost(self.key, self.fence)

    def holds(self) -> bool:
        """True while the job is ours. Waits for Redis, and raises StoreUnavailable, as `check` does."""
        pause = 0.05
        while self.lanes:
            asked_at = time.monotonic()
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
        """Report how far the job is. Cheap to call often: written at most five times a second, and at the end.

        Where Redis is away or refuses the report, the job goes on, and reports nothing for two seconds. Raises
        TypeError for anything but whole numbers.
        """
        done, total = index(done), index(total)
        now = time.monotonic()
        if self.lanes and now >= self._quiet_until and (now - self._written >= 0.2 or done >= total):
            self._written = now
            try:
                self.lanes.progress(self.id, self.token, done, total)
            except (StoreUnavailable, StoreRefused) as error:
                self._quiet_until = time.monotonic() + _QUIET
                logger.info("job %s: its progress is not reported: %s", self.id, error)


working: ContextVar[CurrentJob | None] = ContextVar("coordinator_job", default=None)


def current_job() -> CurrentJob | None:
    """The job of the calling task, or None outside a job."""
    return working.get()
