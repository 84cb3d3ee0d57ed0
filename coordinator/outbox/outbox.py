"""One outbox: where a transaction writes, and where the relay and `doctor` read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from shlex import quote
from typing import TYPE_CHECKING

from coordinator.core.client import on_commit
from coordinator.core.finding import Finding
from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.validation import text
from coordinator.core.store.client import Store
from coordinator.core.threads import SendingThread, connections_closed
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.outbox.in_django import DjangoRows
from coordinator.outbox.in_sqlalchemy import TableRows
from coordinator.outbox.rows import Rows

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

LATE = 30.0  # seconds after which a row should have been submitted
_SEEN = 1000  # rows that `doctor` reads
_KEPT = 10  # seconds for which a wake-up is kept where no relay takes it: it looks each four
_PAUSE = 0.005  # seconds between two wake-ups from one process


class Wakes(SendingThread[str]):
    """Wakes relays from a thread, so that no commit waits for Redis. A wake-up may be lost: the relay looks anyway.

    `store()`: returns the client of Redis.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        super().__init__("coordinator-outbox-wakes", _PAUSE, 1000)
        self._store = store

    def send(self, items: list[str]) -> None:
        store = self._store()
        for key in set(items):
            wake = store.key("outbox-wake", key)
            try:
                store.read_many([("RPUSH", wake, 1), ("LTRIM", wake, 0, 0), ("EXPIRE", wake, _KEPT)])
            except (StoreUnavailable, StoreRefused):
                continue


class Outbox:
    """`key`: of the lane that the relay holds."""

    def __init__(self, key: str, rows: Rows, wakes: Wakes) -> None:
        self.key, self.rows = key, rows
        self._wakes = wakes

    def write(self, request: JobRequest, session: on_commit.AnySession | None) -> None:
        """Wake the relay now, too: it then looks often, and so finds the row of a process that dies at its commit."""
        self._wake()
        self.rows.write(request, session, self._wake)

    def _wake(self) -> None:
        self._wakes.put(self.key)

    def says_of(self, job_id: str) -> str:
        """Say where the row of a job is, and why no node has submitted it yet; "" if there is none."""
        row = self.rows.of_job(job_id)
        if row is None:
            return ""
        return f"row {row.number} of {self.rows.place}: {row.error or 'a node submits it within seconds'}"

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the outbox, for `doctor`."""
        thing = f"outbox {self.rows.place}"
        try:
            with connections_closed():
                rows = self.rows.read(_SEEN)
        except Exception as error:  # of the database's driver
            said = str(error).partition("\n")[0]
            fix = "have its database answer; if it lacks the table, run your migrations (manage.py migrate coordinator)"
            yield Finding("error", "outbox.away", thing, f"cannot be read: {said}", fix)
            return
        refused = [row for row in rows if row.error]
        for row in refused:
            quota = re.match(r"nobody declared the quota '(.+?)'", row.error)
            cause = f"coordinator quota {quote(quota[1])} --concurrency N --why …" if quota else "remove the cause"
            fix = f"{cause}, and it is submitted within seconds; or delete row {row.number} of {self.rows.place}"
            behind = f"later rows of its keys wait behind it, of {len(rows)} in all"
            message = f"job {row.job_id} cannot be submitted, and {behind}: {row.error}"
            yield Finding("error", "outbox.refused", f"row {row.number} of {self.rows.place}", message, fix)
        late = time.time() - min((row.written for row in rows), default=time.time())
        if late > LATE and not refused:
            fix = f"start a node of the app, whose log says what fails; or resume the lane {self.key}, if it is paused"
            message = f"has rows that no relay has submitted for {late:.0f} s"
            yield Finding("error", "outbox.late", thing, message, fix)


def declare(
    app: str, known: dict[str, on_commit.Outbox], using: str | None, table: Table | None, engine: Engine | None,
    store: Callable[[], Store],
) -> Outbox:  # fmt: skip
    """Add an outbox to those that are `known`, and return it. `app`: the name of the Celery app.

    Raises SettingsError for arguments that name none, or one that is known.
    """
    rows: Rows
    if table is None and engine is None:
        name = "default" if using is None else text("using", using)
        rows = DjangoRows(name, app)
    elif using is None and table is not None and engine is not None:
        name = ""
        rows = TableRows(table, engine, app)
    else:
        raise SettingsError(
            "an outbox is in SQLAlchemy's table=… and engine=…, or in Django's database using='default'"
        )
    if name in known:
        raise SettingsError(f"the outbox in {rows.place} is declared already" if name else "SQLAlchemy has one outbox")
    box = Outbox("/".join(filter(None, ("coordinator/outbox", app, name))), rows, Wakes(store))
    known[name] = box
    return box
