"""The job that this thread (or greenlet) works on now."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.errors import LeaseLost, StoreRefused, StoreUnavailable
from coordinator.jobs.spec import Cause

logger = logging.getLogger(__name__)

_QUIET = (
    2.0  # seconds for which progress is not told after an error: a Redis that hangs would hold up the job each time
)


class Owner(Protocol):
    """Says whose the job is: `coordinator.lanes.Lanes`, or the one in memory."""

    def holds(self, job_id: str, token: str) -> bool: ...

    def progress(self, job_id: str, token: str, done: int, total: int) -> object: ...


@dataclass(frozen=True, slots=True)
class Undoing:
    """A rollback is given the arguments of the step that failed, the error, and the last step's result if any.

    `results`: those of all steps before. `error["parts"]`: how the sub-results ended, where the attempt was parked.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: Cause | None
    result: Any
    results: tuple[Any, ...] = ()


@dataclass(slots=True)
class CurrentJob:
    """A task's view of its job; `fence` belongs into every write that must not come late.

    `undoing` is set while the task is the job's rollback; `mute`: ids of published tasks that store no result. `ttl`:
    how many seconds its lease lasts unless it is renewed.
    """

    id: str
    keys: tuple[str, ...]
    token: str
    fence: int
    attempt: int
    lanes: Owner | None = field(repr=False)
    undoing: Undoing | None = None
    mute: set[str] = field(default_factory=set, repr=False)
    ttl: float = field(default=0.0, repr=False)
    _told: float = field(default=0.0, repr=False)
    _quiet: float = field(default=0.0, repr=False)
    _confirmed: float = field(default_factory=time.monotonic, repr=False)

    @property
    def key(self) -> str:
        return self.keys[0]

    def check(self) -> None:
        """Raises LeaseLost when the job was given to somebody else or ended.

        Where Redis does not answer, it waits until the lease that was confirmed last must be over. Then it raises
        StoreUnavailable: nobody can say.
        """
        if not self.holds():
            raise LeaseLost(self.key, self.fence)

    def holds(self) -> bool:
        """Whether the job is ours, where somebody can say; as `check`."""
        pause = 0.05
        while self.lanes:
            asked = time.monotonic()
            try:
                ours = self.lanes.holds(self.id, self.token)
            except StoreUnavailable:
                left = self._confirmed + self.ttl - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(pause, left))
                pause = min(1.0, pause * 2)
            else:
                self._confirmed = asked if ours else self._confirmed
                return ours
        return True

    def progress(self, done: int, total: int) -> None:
        """Say how far the job is. Cheap to call often: written at most five times a second, and at the end.

        It is news only: where Redis is away or refuses it, the job goes on, and says nothing for a while.
        """
        now = time.monotonic()
        if self.lanes and now >= self._quiet and (now - self._told >= 0.2 or done >= total):
            self._told = now
            try:
                self.lanes.progress(self.id, self.token, done, total)
            except (StoreUnavailable, StoreRefused) as error:
                self._quiet = time.monotonic() + _QUIET
                logger.info("job %s: its progress is not told: %s", self.id, error)


working: ContextVar[CurrentJob | None] = ContextVar("coordinator_job", default=None)


def current_job() -> CurrentJob | None:
    """The job that the calling task is, or None outside one."""
    return working.get()
