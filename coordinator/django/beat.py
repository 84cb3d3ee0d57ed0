"""django-celery-beat's tables as a source of schedule entries, for any number of our beats.

    coordinator = Coordinator(app)
    coordinator.schedule_source(PeriodicTaskSource(coordinator))

Each second a beat asks the database for one value, by which django-celery-beat tells that a row has changed; the rows
are read anew when it did, and each minute. A thread does that, so that a database which does not answer holds up no
tick; while it fails, the beat keeps the entries that it has, and its log says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from coordinator.core.threads import StoppableThread, connections_closed
from coordinator.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator
    from coordinator.django.runs import Runs
    from coordinator.scheduler.entry import Entry

FIRST = 5.0  # seconds for which the first look may keep a beat
SHORT = 0.25  # seconds for which any other look may, before the beat goes on with what it has
LATE = 10.0  # seconds of a look after which the database does not answer
ANEW = 60.0  # seconds after which all rows are read, also those that changed in silence (QuerySet.update)

logger = logging.getLogger(__name__)


class PeriodicTaskSource:
    """The enabled rows of django-celery-beat's PeriodicTask, as entries of the same names. Beats write `last_run_at`
    and `total_run_count`, and disable rows that are over.
    """

    sent_by = ("django_celery_beat.schedulers:DatabaseScheduler", "django")  # schedulers that send the rows, too

    def __init__(self, coordinator: Coordinator) -> None:
        self._reader = _Reader(coordinator)
        self._started = False

    def place(self, entry: str) -> str:
        """Say where people change an entry."""
        return f"the admin, Periodic tasks › {entry}"

    def __call__(self) -> tuple[str, Iterable[Entry]]:
        """Return the version of the rows, and the entries. Raises the error of the last look at the database."""
        if not self._started:
            self._started = True
            self._reader.start()
        return self._reader.looked()

    def taken(self, lasts: Mapping[str, datetime]) -> None:
        """Take over from the beat the last instant of each entry that any beat has taken."""
        self._reader.lasts = lasts

    def stop(self) -> None:
        self._reader.stop()


class _Reader(StoppableThread):
    """The thread that looks at the database when a beat asks for it, and writes back what became of the entries."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__("coordinator-periodic-tasks", SHORT)
        self.lasts: Mapping[str, datetime] | None = None  # None: no beat said so, so this process writes nothing
        self._coordinator = coordinator
        self._runs: Runs | None = None
        self._ask, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._asked_at = self._read_at = 0.0
        self._sign: object = None  # of the rows as last read
        self._version, self._entries = 0, list["Entry"]()  # version 0: the rows were never read
        self._error: Exception | None = None
        self._where: TracebackType | None = None
        self._not_written = ""  # the error of the last try to write, "" = none

    def looked(self) -> tuple[str, Iterable[Entry]]:
        """Have the thread look, and wait for that; but not for long, and not again for a look that lasts."""
        patience = 0.0
        if self._done.is_set():
            self._done.clear()
            self._asked_at, patience = time.monotonic(), SHORT if self._version else FIRST
            self._ask.set()
        if not self._done.wait(patience) and (not self._version or time.monotonic() - self._asked_at > LATE):
            raise TimeoutError("the database of django-celery-beat does not answer")
        if self._error:
            raise self._error.with_traceback(self._where)
        return str(self._version), self._entries

    def run(self) -> None:
        with connections_closed():
            while self._ask.wait() and not self.stopping.is_set():
                self._ask.clear()
                self._cycle()

    def stop(self) -> None:
        self.stopping.set()
        self._ask.set()
        super().stop()

    def _cycle(self) -> None:
        from django.db import close_old_connections  # a site's module names this source before Django is set up

        try:
            close_old_connections()  # as before a request: those that are broken, or older than CONN_MAX_AGE
            self._look()
            self._error = None
        except Exception as error:
            self._error, self._where = error, error.__traceback__
        self._done.set()
        if self._error is None and self.lasts is not None:
            self._write(self.lasts)

    def _look(self) -> None:
        from coordinator.django.runs import Runs

        runs = self._runs = self._runs or Runs(self._coordinator)
        sign = runs.sign()  # before the rows: a change meanwhile is seen by the next look
        if self._version and sign == self._sign and time.monotonic() - self._read_at < ANEW:
            return
        entries = runs.read()
        if entries is not None:
            self._entries, self._version = entries, self._version + 1
        self._sign, self._read_at = sign, time.monotonic()

    def _write(self, lasts: Mapping[str, datetime]) -> None:
        assert self._runs
        try:
            self._runs.write(lasts)
            self._not_written = ""
        except (StoreUnavailable, StoreRefused):
            pass  # the beat says so itself; the next look tries again
        except Exception as error:
            if self._not_written != repr(error):
                logger.exception("cannot write to the tables of django-celery-beat; each second tries again")
            self._not_written = repr(error)
