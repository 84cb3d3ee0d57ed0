"""The outbox of a process: sends the results and links of ended jobs from a thread.

    put ─► the thread takes all that is queued ─► it sends results and links ─► Redis notes that they were sent

So a backend or broker that hangs delays no job. A lone result goes out at once, and those of a burst together, the last
of them once its runner has nothing more to do. The outbox retries for some seconds. After that the errands of any node
of the app send the rest, as they do for a process that died, since Redis notes with each outcome what is still to be
sent.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from celery import Celery

from coordinator.errors import CoordinatorError
from coordinator.runner.results import JobEnd, coalesced_into, goes_on, send_many
from coordinator.store.client import Store
from coordinator.threads import SendingThread

logger = logging.getLogger(__name__)

_PAUSE = 0.02  # seconds between two rounds while a runner goes on; a round costs as much as three results
_AGAIN = 0.25  # seconds between two tries
_OURS = 4.0  # seconds of tries; the errands get it after 5: `tell_after` in functions/steps/runner.lua
_MOST = 5000  # ends that wait
_ROOM = 16 * 2**20  # bytes of results that wait


class Owed(NamedTuple):
    """The end of a job, to be sent. The outbox tries until `until` (time.monotonic()), then the errands do.

    `size`: bytes of its result.
    """

    until: float
    size: int
    end: JobEnd


class Outbox(SendingThread[Owed]):
    """The outbox of one process, see above."""

    def __init__(self, app: Celery, store: Store) -> None:
        super().__init__("coordinator-outbox", _PAUSE, _MOST)
        self._app = app
        self._store = store
        self._size = 0  # bytes put since the last round, roughly: threads may lose one another's sums

    def add(self, end: JobEnd, size: int) -> None:
        """Queue the end of a job; `size`: bytes of its result. An end that finds no room is left to the errands."""
        if self._size + size <= _ROOM:
            self._size += size
            self.put(Owed(time.monotonic() + _OURS, size, end))

    def send(self, items: list[Owed]) -> None:
        """Send plain results together, and ends that a broker may delay one by one, so that Redis notes each as soon as
        it is sent.
        """
        self._size = 0  # first, else an error below would leave no room for ever
        done = set[str]()
        whole = self._whole(items)
        plain = [item for item in whole if not _publishes(item.end)]
        for portion in (plain, *([item] for item in whole if _publishes(item.end))):
            now = time.monotonic()
            sent = send_many(self._app, [item.end for item in portion if item.until > now])
            if sent:
                self._store.step("notices_sent", self._app.main, *sent)
                done |= sent
        now = time.monotonic()
        left = [item for item in items if item.end.job.id not in done and item.until > now]
        self._size += sum(item.size for item in left)
        if left:
            time.sleep(_AGAIN)
            for item in left:
                self.put(item)

    def _whole(self, items: list[Owed]) -> list[Owed]:
        """Add to each end the ids of the submits that coalesced into its job, and leave out ends for which Redis does
        not answer. If Redis is away, only the first of them waits for it.
        """
        whole, away = [], False
        for item in items:
            end = item.end
            if end.coalesces and not away:
                try:
                    end = coalesced_into(self._store, end)
                except CoordinatorError as error:
                    logger.warning("job %s: its end is not sent yet: %s", end.job.id, error)
                    away = True
            if not (end.coalesces and away):
                whole.append(item._replace(end=end))
        return whole


def _publishes(end: JobEnd) -> bool:
    """True if a job that ends so may publish messages: its links and errbacks, or those of coalesced submits."""
    return goes_on(end.spec) or end.coalesces
