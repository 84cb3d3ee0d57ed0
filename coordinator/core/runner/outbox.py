"""The outbox of a process: a background thread sends the results and links of ended jobs.

    add ─► the thread takes all queued ends ─► it sends results and links ─► Redis records that they are sent

A result backend or broker that hangs therefore delays no job. The thread sends the first result at once and those that
follow quickly in one batch; when a runner has no more jobs, it sends the rest without a pause. The outbox retries for 4
seconds. Later, maintenance of any node of the app sends what is left, also for a process that died: Redis stores with
each outcome that its result and links are still to be sent.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from celery import Celery

from coordinator.core.runner.results import JobEnd, coalesced_into, has_followers, send_many
from coordinator.core.store.client import Store
from coordinator.core.store.steps import notices_sent
from coordinator.core.threads import SendingThread
from coordinator.errors import CoordinatorError

logger = logging.getLogger(__name__)

_PAUSE = 0.02  # seconds between two batches while a runner has jobs; a batch costs as much as three single results
_AGAIN = 0.25  # seconds until a failed send is tried again
_OURS = 4.0  # seconds that the outbox tries; after 5, maintenance does: `tell_after` in functions/steps/runner.lua
_MOST = 5000  # ends of jobs in the queue; beyond that the oldest are left to maintenance
_ROOM = 16 * 2**20  # bytes of all results in the queue; beyond that, new ends are left to maintenance


class Owed(NamedTuple):
    """The end of a job whose result and links are to be sent. `until`: the time.monotonic() up to which the outbox
    tries; after it, maintenance does. `size`: bytes of the result.
    """

    until: float
    size: int
    end: JobEnd


class Outbox(SendingThread[Owed]):
    """Queues the ends of jobs in one process, and sends their results and links from a background thread."""

    def __init__(self, app: Celery, store: Store) -> None:
        super().__init__("coordinator-outbox", _PAUSE, _MOST)
        self._app = app
        self._store = store
        self._size = 0  # bytes of results queued since the last batch; not exact, since two threads may add at once

    def add(self, end: JobEnd, size: int) -> None:
        """Queue the end of a job; `size`: bytes of its result. With 16 MiB of results in the queue already, do nothing:
        maintenance sends it later.
        """
        if self._size + size <= _ROOM:
            self._size += size
            self.put(Owed(time.monotonic() + _OURS, size, end))

    def send(self, items: list[Owed]) -> None:
        """Send the results and links of these ends, and put those that failed back into the queue. Plain results go
        together; ends with links go one by one, since the broker may hang and Redis is to record each that was sent.
        """
        self._size = 0  # reset before sending: otherwise an error below would leave the queue full for ever
        done = set[str]()
        whole = self._whole(items)
        plain = [item for item in whole if not _publishes(item.end)]
        for portion in (plain, *([item] for item in whole if _publishes(item.end))):
            now = time.monotonic()
            sent = send_many(self._app, [item.end for item in portion if item.until > now])
            if sent:
                notices_sent(self._store, self._app.main, *sent)
                done |= sent
        now = time.monotonic()
        left = [item for item in items if item.end.job.id not in done and item.until > now]
        self._size += sum(item.size for item in left)
        if left:
            time.sleep(_AGAIN)
            for item in left:
                self.put(item)

    def _whole(self, items: list[Owed]) -> list[Owed]:
        """Read from Redis which submits coalesced into each job, and return the ends with these. Leaves out the ends
        for which Redis does not answer; after the first failure, Redis is not asked again.
        """
        whole, away = [], False
        for item in items:
            end = item.end
            if end.coalesces and not away:
                try:
                    end = coalesced_into(self._store, end)
                except CoordinatorError as error:
                    logger.warning("job %s: cannot send its result and links yet: %s", end.job.id, error)
                    away = True
            if not (end.coalesces and away):
                whole.append(item._replace(end=end))
        return whole


def _publishes(end: JobEnd) -> bool:
    """True if sending this end may publish messages: links, errbacks, a canvas, or those of coalesced submits."""
    return has_followers(end.spec) or end.coalesces
