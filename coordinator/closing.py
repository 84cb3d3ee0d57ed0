"""A process that is told to end submits nothing more, except for tasks at work in it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from coordinator.errors import ShuttingDown
from coordinator.jobs.current import current_job

if TYPE_CHECKING:
    from celery.app.task import Task


def task_at_work() -> Task | None:
    """The task that this thread works on, or None. A process without Celery's has none."""
    state = sys.modules.get("celery._state")
    return state and state.get_current_task()


class Closing:
    """The part of a Coordinator that knows whether its process ends."""

    _closed_in: int | None = None  # the pid: a process forked later begins anew

    def check_open(self) -> None:
        """Raise ShuttingDown after `close`."""
        if self._closed_in == os.getpid() and not task_at_work() and not current_job():
            raise ShuttingDown("this process is shutting down: nothing is submitted any more")

    def close(self) -> None:
        """Have `submit` raise ShuttingDown in this process from here, except for tasks at work in it.

        A worker that is told to end calls this by itself. A repeated call changes nothing.
        """
        self._closed_in = os.getpid()
