"""The job that this thread (or greenlet) works on now."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.errors import LeaseLost
from coordinator.jobs.spec import Cause


class Owner(Protocol):
    """Says whose the job is: `coordinator.lanes.Lanes`, or the one in memory."""

    def holds(self, job_id: str, token: str) -> bool: ...

    def progress(self, job_id: str, token: str, done: int, total: int) -> object: ...


@dataclass(frozen=True, slots=True)
class Undoing:
    """A rollback is given the arguments of the step that failed, the error, and the last step's result if any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: Cause | None
    result: Any


@dataclass(slots=True)
class CurrentJob:
    """A task's view of its job; `fence` belongs into every write that must not come late.

    `undoing` is set while the task is the job's rollback; `mute`: ids of published tasks that store no result.
    """

    id: str
    keys: tuple[str, ...]
    token: str
    fence: int
    attempt: int
    lanes: Owner | None = field(repr=False)
    undoing: Undoing | None = None
    mute: set[str] = field(default_factory=set, repr=False)
    _told: float = field(default=0.0, repr=False)

    @property
    def key(self) -> str:
        return self.keys[0]

    def check(self) -> None:
        """Raises LeaseLost when the job was given to somebody else or ended; StoreUnavailable when nobody can say."""
        if self.lanes and not self.lanes.holds(self.id, self.token):
            raise LeaseLost(self.key, self.fence)

    def progress(self, done: int, total: int) -> None:
        """Say how far the job is. Cheap to call often: written at most five times a second, and at the end."""
        now = time.monotonic()
        if self.lanes and (now - self._told >= 0.2 or done >= total):
            self._told = now
            self.lanes.progress(self.id, self.token, done, total)


working: ContextVar[CurrentJob | None] = ContextVar("coordinator_job", default=None)


def current_job() -> CurrentJob | None:
    """The job that the calling task is, or None outside one."""
    return working.get()
