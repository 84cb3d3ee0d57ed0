"""A process that is told to end submits nothing more, except for tasks at work in it."""

from __future__ import annotations

import os

from celery import current_task

from coordinator.errors import ShuttingDown


class Closing:
    """The part of a Coordinator that knows whether its process ends."""

    _closed_in: int | None = None  # the pid: a process forked later begins anew

    def check_open(self) -> None:
        """Raise ShuttingDown after `close`."""
        if self._closed_in == os.getpid() and not current_task:
            raise ShuttingDown("this process is shutting down: nothing is submitted any more")

    def close(self) -> None:
        """Have `submit` raise ShuttingDown in this process from here, except for tasks at work in it.

        A worker that is told to end calls this by itself. A repeated call changes nothing.
        """
        self._closed_in = os.getpid()
