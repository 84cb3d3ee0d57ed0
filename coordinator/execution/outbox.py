"""The outbox of a process: how jobs ended, for those who wait to hear of it.

    put ─► its thread takes all that wait ─► results and links are sent ─► Redis notes that they were

So neither a backend nor a broker that hangs holds up a job. A lone result goes out at once, those of a burst together.
The outbox tries again for some seconds. From then on the errands of any node of the app send the rest, as they do for
a process that died: Redis has noted what is owed with the outcome itself.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from celery import Celery

from coordinator.errors import CoordinatorError
from coordinator.execution.results import JobEnd, goes_on, melted_into, send_many, tell_begun
from coordinator.store.client import Store
from coordinator.threads import SendingThread

logger = logging.getLogger(__name__)

_PAUSE = 0.004  # seconds between two rounds
_AGAIN = 0.25  # seconds until what could not be sent is tried again
_OURS = 4.0  # seconds; the errands are offered it after 5: `tell_after` in functions/steps/runner.lua
_NEWS = 1.0  # seconds for which it is news that a job has begun
_MOST = 5000  # ends that wait
_ROOM = 16 * 2**20  # bytes of results that wait


class Begun(NamedTuple):
    """A job that a process began; `at`: time.monotonic()."""

    job_id: str
    task: str
    hostname: str
    at: float


class Owed(NamedTuple):
    """An end that others are owed, and the outbox may send until then; `size`: bytes of its result."""

    until: float
    size: int
    end: JobEnd


class Outbox(SendingThread[Owed | Begun]):
    def __init__(self, app: Celery, store: Store) -> None:
        super().__init__("coordinator-outbox", _PAUSE, _MOST)
        self._app = app
        self._store = store
        self._size = 0  # bytes put since the last round, roughly: threads may lose one another's sums

    def add(self, end: JobEnd, size: int) -> None:
        """`size`: bytes of the result. One that finds no room is left to the errands."""
        if self._size + size <= _ROOM:
            self._size += size
            self.put(Owed(time.monotonic() + _OURS, size, end))

    def began(self, job_id: str, task: str, hostname: str) -> None:
        """The backend is told, in the order in which all is put. This is news only: it may be late, or never come."""
        self.put(Begun(job_id, task, hostname, time.monotonic()))

    def send(self, items: list[Owed | Begun]) -> None:
        over = {item.end.job.id for item in items if isinstance(item, Owed)}
        fresh = time.monotonic() - _NEWS
        for item in items:
            if isinstance(item, Begun) and item.at > fresh and item.job_id not in over:
                tell_begun(self._app, item.job_id, item.task, item.hostname)
        self._send([item for item in items if isinstance(item, Owed)])

    def _send(self, items: list[Owed]) -> None:
        """Plain results together; one by one what a broker may hold up. So nobody else sends what was sent."""
        self._size = 0  # at once: else an error here would leave no room for ever
        told = set[str]()
        whole = self._whole(items)
        plain = [item for item in whole if not _publishes(item.end)]
        for portion in (plain, *([item] for item in whole if _publishes(item.end))):
            now = time.monotonic()
            sent = send_many(self._app, [item.end for item in portion if item.until > now])
            if sent:
                self._store.step("notices_told", self._app.main, *sent)
                told |= sent
        now = time.monotonic()
        left = [item for item in items if item.end.job.id not in told and item.until > now]
        self._size += sum(item.size for item in left)
        if left:
            time.sleep(_AGAIN)
            for item in left:
                self.put(item)

    def _whole(self, items: list[Owed]) -> list[Owed]:
        """With the ids of those whose submits melted into a job; without those jobs for which Redis does not tell them.

        A Redis that is away costs one wait, not one for each.
        """
        whole, away = [], False
        for item in items:
            end = item.end
            if end.melts and not away:
                try:
                    end = melted_into(self._store, end)
                except CoordinatorError as error:
                    logger.warning("job %s: its end is not told yet: %s", end.job.id, error)
                    away = True
            if not (end.melts and away):
                whole.append(item._replace(end=end))
        return whole


def _publishes(end: JobEnd) -> bool:
    """May this end be told by messages, too? Those that melted into the job may have links of their own."""
    return goes_on(end.spec) or end.melts
