"""The relay of an outbox, a thread in the maintenance process of each node. One of them, which holds the lane of the
outbox, works; the others wait for its end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from coordinator.core.jobs.request import JobRequest
from coordinator.core.lanes.client import LaneClient
from coordinator.core.locks.leases import Lease
from coordinator.core.locks.locks import Locks
from coordinator.core.store.client import Store
from coordinator.core.store.connections import Pop
from coordinator.core.store.step import Reply
from coordinator.core.store.steps import outbox_forget, outbox_submit
from coordinator.core.store.wire import Arg
from coordinator.core.threads import StoppableThread, connections_closed
from coordinator.errors import InvalidJob, LaneFull, LeaseLost, Locked, UnknownJob
from coordinator.outbox.outbox import LATE, Outbox
from coordinator.outbox.rows import Row, request_of

logger = logging.getLogger(__name__)

_LEASE = 2.0  # seconds after its last renewal for which a relay that died keeps others out
_AGAIN = 1.0  # seconds between two tries to become the relay that works
_LOOK = 4.0  # seconds after which it reads the table without being woken
_ALERT = 10.0  # seconds after a wake-up for which it looks after each _SLICE
_SLICE = 1.0  # seconds for which it waits for a wake-up at once
_PAGE = 100  # rows that it reads at once, beside those that stay
_STEP = 100_000  # characters of requests that one step submits, unless a row alone has more: Redis waits meanwhile
_STAY = 10_000  # rows that may stay; those behind them are not looked at


class Relay(StoppableThread):
    """Submits the rows of an outbox, and deletes them.

    A row that is refused stays, and so do later rows with a key of it, so that each key keeps its order. All are tried
    again at each look. A row of a job that is to run after one that Redis does not know (`after`) stays alone: for as
    long as that has a row, too, and else for half a minute. Then that cause counts as gone.
    """

    def __init__(self, outbox: Outbox, store: Store, lanes: LaneClient, locks: Locks) -> None:
        super().__init__(f"relay-{outbox.key}", 2.0)
        self._key, self._rows, self._place = outbox.key, outbox.rows, outbox.rows.place
        self._store, self._lanes, self._locks = store, lanes, locks
        self._wake = store.key("outbox-wake", outbox.key)
        self._stayed = 0  # rows that the last look left in the table
        self._unknown: dict[Row, str] = {}  # rows that the last look left, and a cause of each that nobody knows
        self._since: dict[int, float] = {}  # by the number of such a row: since when its cause has had no row either
        self._presumed: set[int] = set()  # numbers of rows whose unknown causes count as gone
        self._failure = ""  # the error that the log told last; "" once all went well again

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with self._locks.lock(self._key, _LEASE) as lease:
                    self._relay(lease)
            except Locked:
                pass
            except LeaseLost as error:
                logger.info("outbox %s: another relay goes on: %s", self._place, error)
            except Exception as error:  # also of the database's driver
                self._tell(f"{type(error).__name__}: {error}")
            self.stopping.wait(_AGAIN)

    def _tell(self, failure: str) -> None:
        """Log a failure when it is new, and its end."""
        if failure and failure != self._failure:
            logger.warning("outbox %s: its rows stay, and are tried again: %s", self._place, failure)
        elif self._failure and not failure:
            logger.warning("outbox %s: its rows are submitted again", self._place)
        self._failure = failure

    def _relay(self, lease: Lease) -> None:
        with connections_closed():
            self._forget_deleted(lease)
        with self._store.pop(self._wake) as pop:
            while self._goes_on(lease):
                with connections_closed():
                    self._be_alert(lease, pop)
                self._rest(lease, pop)

    def _goes_on(self, lease: Lease) -> bool:
        return not (self.stopping.is_set() or lease.lost.is_set())

    def _be_alert(self, lease: Lease, pop: Pop) -> None:
        """Look often, until nobody has sent a wake-up for a while: a process that dies just after its commit sends no
        second one.
        """
        until = time.monotonic() + _ALERT
        while self._goes_on(lease) and time.monotonic() < until:
            more = self.look(lease)
            self._tell("")
            if more or pop(_SLICE):
                until = time.monotonic() + _ALERT

    def _rest(self, lease: Lease, pop: Pop) -> None:
        """Look seldom, until a wake-up comes or there is more than one look can do."""
        looked = time.monotonic()
        while self._goes_on(lease) and not pop(_SLICE):
            if time.monotonic() - looked >= _LOOK - _SLICE / 2:
                looked = time.monotonic()
                with connections_closed():
                    more = self.look(lease)
                self._tell("")
                if more:
                    return

    def _forget_deleted(self, lease: Lease) -> None:
        """Have Redis forget the rows that the relay before this one has deleted."""
        known = [job_id.decode() for job_id in self._store.read("SMEMBERS", self._store.key("outbox", self._key))]
        if known and (gone := {*known} - self._rows.having(known)):
            outbox_forget(self._store, self._key, lease.token, *gone)

    def look(self, lease: Lease) -> bool:
        """Submit the rows with the lowest numbers, and return True if there may be more to do."""
        most = min(self._stayed, _STAY) + _PAGE
        rows = self._rows.read(most)
        closed: set[str] = set()  # the keys of rows that stay
        self._unknown = {}
        done = sum(self._submit(lease, step, closed) for step in _steps(rows))
        self._stayed = len(rows) - done
        self._presume()
        return len(rows) == most and (done > 0 or self._stayed <= _STAY)

    def _submit(self, lease: Lease, rows: Sequence[Row], closed: set[str]) -> int:
        """Submit rows and delete them. Returns their number, without those that stay, whose keys it adds to `closed`.

        Raises LeaseLost, and deletes nothing, if another relay may have taken over.
        """
        asked, refused = _open(rows, closed, self._presumed)
        done: list[Row] = []
        for (row, request), reply in zip(asked, self._ask(lease, asked), strict=True):
            if reply[0] != b"behind":
                try:
                    if reply[0] == b"broken":
                        raise InvalidJob("Redis cannot make a job of it; the log of Redis says why")
                    self._lanes.answer(request, reply)
                    done.append(row)
                    continue
                except LaneFull as error:  # without their number, which is another at each look
                    refused[row] = f"as many jobs as its max_waiting wait for {error.key!r} already"
                except InvalidJob as error:
                    refused[row] = str(error)
                except UnknownJob as error:
                    self._unknown[row] = error.job_id
                    continue
            closed.update(request.keys)
        self._note(refused)
        if done:
            self._rows.delete([row.number for row in done])
            outbox_forget(self._store, self._key, lease.token, *(row.job_id for row in done))
        return len(done)

    def _ask(self, lease: Lease, asked: Sequence[tuple[Row, JobRequest]]) -> list[Reply]:
        args: list[Arg] = []
        for _, request in asked:
            step_args = request.step_args()
            args += [len(step_args), *step_args]
        replies: list[Reply] | None = outbox_submit(self._store, self._key, lease.token, *args) if asked else []
        if replies is None:
            raise LeaseLost(lease.key, lease.fence)
        return replies

    def _presume(self) -> None:
        """Decide which unknown causes count as gone from the next look on: those without a row of their own for too
        long, and those of rows that wait for each other.
        """
        has_row = self._rows.having({*self._unknown.values()}) if self._unknown else set()
        lone = [row for row, cause in self._unknown.items() if cause not in has_row]
        now = time.monotonic()
        self._since = {row.number: self._since.get(row.number, now) for row in lone}
        late = {number for number, since in self._since.items() if now - since > LATE}
        gone = late | {row.number for row in _in_a_ring(self._unknown)}
        for row in self._unknown:
            if row.number in gone:
                said = "outbox %s: job %s is to run after job %s, which nobody knows: it counts as gone"
                logger.warning(said, self._place, row.job_id, self._unknown[row])
        self._presumed = (self._presumed & {row.number for row in self._unknown}) | gone

    def _note(self, refused: Mapping[Row, str]) -> None:
        """Tell of refused rows where they lie and in the log, if that does not say so already."""
        news = {row: error for row, error in refused.items() if row.error != error}
        for error in {*news.values()}:
            rows = [row for row in news if news[row] == error]
            self._rows.note([row.number for row in rows], error)
            named = ", ".join(f"{row.number} (job {row.job_id})" for row in rows)
            logger.error("outbox %s: cannot submit row %s: %s", self._place, named, error)


def _steps(rows: Sequence[Row]) -> Iterator[list[Row]]:
    step, size = list[Row](), 0
    for row in rows:
        size += len(row.request)
        if step and size > _STEP:
            yield step
            step, size = [], len(row.request)
        step.append(row)
    if step:
        yield step


def _in_a_ring(unknown: Mapping[Row, str]) -> list[Row]:
    """Those of these rows that wait for themselves. `unknown`: a row and the id of the job for which it waits."""
    causes = {row.job_id: cause for row, cause in unknown.items()}

    def leads_back(job_id: str) -> bool:
        passed, at = set[str](), causes[job_id]
        while at in causes and at != job_id and at not in passed:
            passed.add(at)
            at = causes[at]
        return at == job_id

    return [row for row in unknown if leads_back(row.job_id)]


def _open(
    rows: Sequence[Row], closed: set[str], presumed: Collection[int]
) -> tuple[list[tuple[Row, JobRequest]], dict[Row, str]]:
    """Return the rows that may be submitted now, with their requests, and those that are damaged. A row behind one that
    stays has to stay, too. `presumed`: numbers of rows whose unknown causes count as gone.
    """
    found, damaged = [], dict[Row, str]()
    for row in rows:
        try:
            request = request_of(row.request)
        except ValueError as error:
            damaged[row] = str(error)
            continue
        if row.number in presumed:
            request.fields = (*request.fields, "unknown", "gone")
        if closed.isdisjoint(request.keys):
            found.append((row, request))
        else:
            closed.update(request.keys)
    return found, damaged
