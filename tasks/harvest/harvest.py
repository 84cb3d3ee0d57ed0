"""Synchronizes one member: lists the objects changed since the last run, fetches their metadata, stores it, sets dates.

A run is one execution of the job. It fetches the requested pids, then makes a pass: it lists the objects that changed
within a window of dates (an increment), or all objects (a complete pass). A later run may resume an interrupted pass.

* A window begins `overlap` before the date in the nodelist, and ends `margin` before now. A run does not fetch an
  object again if the catalog has it under the same date, and its entry in the listing has the same format, size and
  checksum. So the overlap costs a listing only, and a complete pass finds an object that was replaced without a new
  date. Changes that no entry shows, such as an archival, are not found that way.
* A pass from a member's beginning, after a reset or for a new member, fetches everything, also objects that were stored
  or failed before.
* The catalog stores, with the objects of each page, a cursor: where to resume. A run resumes there if the nodelist has
  the same date as when the pass began. Otherwise an operator has reset the member, and the date in the nodelist counts.
* A run tries a failed object again, then notes the failure, reports it to the member, leaves the object to later runs,
  and goes on. But if the member does not answer for longer than patience.py allows, or one object after the other takes
  too long, the run fails, so that no member keeps a slot for long. The next run begins after those objects.
* Objects that failed in earlier runs come after all new objects, for at most `failure_time`.
* A run begins with a ping. If the member does not answer at all, its ticks do nothing for a while (silence.py).
* A run stores the fetched objects each STORE_EVERY seconds, and at its end, also when it fails.
* A complete pass notes the objects that it saw, and checks whether the others still exist (gone.py).
* A part of a complete pass, of the objects between two dates, fetches what the catalog lacks of these. It has no
  cursor, looks for nothing that is gone, and leaves the dates in the nodelist alone.
* lastHarvested becomes the date of the newest stored object, once every older object is stored or noted as failed.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import takewhile
from typing import Literal

from sqlalchemy.exc import SQLAlchemyError

from tasks import instants
from tasks.catalog.catalog import Catalog, Cursor, Failed, Fetched, Known, ObjectToFetch, Superseded
from tasks.catalog.sightings import Sightings
from tasks.harvest import silence
from tasks.harvest.fetcher import Fetcher, Stalled
from tasks.harvest.gone import GoneSearch
from tasks.harvest.listing import ListingPages
from tasks.harvest.outcome import STORED, SyncResult, bounded, not_synchronizable
from tasks.harvest.patience import MemberPatience
from tasks.harvest.sync_request import CHANGES, COMPLETE, SyncRequest
from tasks.member_node.client import AsksToWait, MemberNode, MemberNodeError, MemberRefused
from tasks.member_node.member import Member
from tasks.member_node.objects import ListedObject, UnreadableEntry
from tasks.nodelist.protocol import Dates, Nodelist
from tasks.settings import Settings

logger = logging.getLogger(__name__)

PORTION = 1000
"""The number of objects that a run compares with the catalog, fetches and stores together."""
BATCH_BYTES = 16 * 1024 * 1024
STORE_EVERY = 5.0
PROGRESS_EVERY = 100
MOST_UNTAKEN = 3


def harvest_member(
    member: Member,
    *,
    client: MemberNode,
    catalog: Catalog,
    nodelist: Nodelist,
    fence: int,
    settings: Settings,
    request: SyncRequest = CHANGES,
    progress: Callable[[int, int], object] = lambda done, total: None,
    check: Callable[[], object] = lambda: None,
    clock: Callable[[], datetime] = instants.now,
) -> SyncResult:
    """Synchronize a member: fetch the requested pids, whatever their date, then list and fetch all changed objects.

    `progress`: called with the numbers of done and of all objects. `check`: called before each write, and raises for a
    lost lease. A request that names pids only fails if none of them can be fetched. Raises MemberNodeError, Superseded.
    """
    member_id = member.identifier
    patience = MemberPatience(client, settings)
    try:
        listed = nodelist.member(member_id)
        reason = "it is not in the nodelist, or not approved" if listed is None else listed.obstacle
        if listed is None or reason is not None:
            catalog.ran(member_id, fence=fence, now=clock(), outcome="not synchronizable", error=reason)
            return not_synchronizable(member_id, request, str(reason))
        run = _Harvest(listed, client, catalog, nodelist, fence, settings, progress, check, clock, clock(), patience)
        patience.begin()
        outcome = run.run(request)
        silence.end(catalog, member_id, fence=fence)
    except Exception as error:
        with suppress(SQLAlchemyError, Superseded):
            silence.after(
                error, patience.delivered_once, catalog, member_id, fence=fence, now=clock(), settings=settings
            )
            catalog.ran(member_id, fence=fence, now=clock(), outcome=_outcome(error), error=str(error))
        raise
    return outcome


def _outcome(error: Exception) -> str:
    return "asked to wait" if isinstance(error, AsksToWait) else "failed"


@dataclass
class _Harvest:
    listed: Member
    client: MemberNode
    catalog: Catalog
    nodelist: Nodelist
    fence: int
    settings: Settings
    progress: Callable[[int, int], object]
    check: Callable[[], object]
    clock: Callable[[], datetime]
    began: datetime
    patience: MemberPatience
    fetcher: Fetcher = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)
    done: int = 0
    total: int = 0
    reports: int = 0
    untaken: int = 0
    """The number of error reports in a row that the member did not accept."""
    pid_results: dict[str, str] = field(default_factory=dict)
    """The result for each requested pid: STORED, or the reason of its failure; empty: not tried yet."""
    unreadable: set[UnreadableEntry] = field(default_factory=set)
    difference: str = ""
    """A sentence, where the member counts more objects than it lists; empty: the numbers agree."""

    @property
    def member_id(self) -> str:
        return self.listed.identifier

    @cached_property
    def sightings(self) -> Sightings:
        return Sightings(self.catalog.engine)

    def run(self, request: SyncRequest) -> SyncResult:
        """Fetch the requested pids, for which users may wait, then run the requested pass, if any."""
        if request.pids:
            # A fetcher for the pids alone: it may stall, and the pass then needs another one.
            with Fetcher(self.client, self.settings, self.patience) as self.fetcher:
                self.fetch_pids(request.pids)
        if request.between is not None:
            with Fetcher(self.client, self.settings, self.patience) as self.fetcher:
                return self.run_part(*request.between)
        if request.kind is not None:
            with Fetcher(self.client, self.settings, self.patience) as self.fetcher:
                return self.run_pass(request.kind)
        if request.pids and self.fetcher.first_requested_error is not None and STORED not in self.pid_results.values():
            raise self.fetcher.first_requested_error
        return self._result(self.listed.last_harvested)

    def fetch_pids(self, pids: Sequence[str]) -> None:
        self.pid_results = dict.fromkeys(pids, "")
        self.total = self.counts["listed"] = len(self.pid_results)
        try:
            self._save([ObjectToFetch(pid, None) for pid in self.pid_results], None)
        except Stalled as error:
            left = [pid for pid, end in self.pid_results.items() if not end]
            self._store([], [Failed(ObjectToFetch(pid, None), str(error), None) for pid in left], None)

    def run_pass(self, kind: Literal["increment", "complete"]) -> SyncResult:
        complete = kind == COMPLETE
        before = self.counts
        self.counts = Counter()
        started_from = (
            (self.listed.last_complete_harvest or instants.NEVER) if complete else self.listed.harvested_until
        )
        until = instants.floor(self.began - timedelta(seconds=self.settings.margin))
        cursor = self._cursor(kind, started_from)
        pages = ListingPages(self.client, cursor.position, until, self.settings, self.patience)
        for page in pages:
            self.check()
            self.total = max(self.total, self.done + page.total)
            at = cursor._replace(position=page.cursor)
            self._page(page.entries, at, at)
            if page.unreadable:
                self._leave_out(page.unreadable, cursor)
        self.difference = pages.difference
        self._old_failures()
        self.check()
        if complete:
            search = GoneSearch(
                self.client, self.sightings, self.settings, self.fence, self.check, self.clock, self.patience
            )
            self.counts["gone"] = search.gone(cursor.began, until)
        self.catalog.finish(self.member_id, kind, fence=self.fence)
        newest = self._newest(until)
        self._raise_if_nothing_was_stored()
        self.counts.update(before)
        outcome = self._result(newest, complete)
        written = self.nodelist.harvested(
            self.member_id,
            Dates(newest, self.began if complete else None),
            fence=self.fence,
            started_from=self.listed.harvested_until,
        )
        update = {"store": written} if written else {"outcome": "reset meanwhile"}
        return outcome.model_copy(update=update)

    def run_part(self, since: datetime, until: datetime) -> SyncResult:
        """List all objects that changed between two dates, and fetch those that the catalog does not have so."""
        until = min(until, instants.floor(self.began - timedelta(seconds=self.settings.margin)))
        looks = Cursor("part", since, since, self.began)
        pages = ListingPages(self.client, since, until, self.settings, self.patience)
        for page in pages:
            self.check()
            self.total = max(self.total, self.done + page.total)
            self._page(page.entries, looks, None)
            if page.unreadable:
                self._leave_out(page.unreadable, looks)
        self.difference = pages.difference
        self.check()
        self._raise_if_nothing_was_stored()
        return self._result(self.listed.last_harvested)

    def _old_failures(self) -> None:
        """Fetch objects that failed in earlier runs, for `failure_time` at most. The next run tries the others."""
        end = time.monotonic() + self.settings.failure_time
        while time.monotonic() < end and (due := self.catalog.due(self.member_id, self.began, PORTION)):
            self.total += len(due)
            try:
                self._save(takewhile(lambda _: time.monotonic() < end, due), None)
            except Stalled:  # all new objects are stored already, and the slow ones are noted as failed again
                return

    def _newest(self, until: datetime) -> datetime | None:
        newest = self.catalog.newest(self.member_id, until)
        return None if newest is None else instants.floor(newest)

    def _cursor(self, kind: str, started_from: datetime) -> Cursor:
        """The cursor at which this pass resumes an interrupted one, or a new cursor at the begin of the window.

        `started_from`: the harvest date that the nodelist has now.
        """
        is_anew = self.listed.harvested_until <= instants.NEVER
        cursor = self.catalog.cursor(self.member_id, kind)
        if cursor is not None and cursor.started_from == started_from and is_anew == (cursor.anew is not None):
            return cursor
        since = instants.NEVER
        if kind != COMPLETE and not is_anew:
            since = started_from - timedelta(seconds=self.settings.overlap)
        return Cursor(kind, started_from, since, self.began, self.fence if is_anew else None)

    def _page(self, entries: Sequence[ListedObject], cursor: Cursor, keep: Cursor | None) -> None:
        """Fetch what the catalog lacks of a page. `keep`: the cursor to store with any part of it; None: none."""
        for start in range(0, max(len(entries), 1), PORTION):
            latest = {entry.pid: entry for entry in entries[start : start + PORTION]}
            known = self.catalog.known(self.member_id, list(latest))
            failing = self.catalog.failing(self.member_id, list(latest))
            targets = []
            for entry in latest.values():
                if (stored := known.get(entry.pid)) and _is_same(entry, stored, cursor):
                    self.counts["unchanged"] += 1
                elif (failure := failing.get(entry.pid)) and _is_postponed(entry, failure, cursor):
                    self.counts["postponed"] += failure[1] > self.began  # _old_failures tries the due ones in this run
                else:
                    targets.append(ObjectToFetch(entry.pid, entry.modified, entry.entry))
            if cursor.kind == COMPLETE:
                self.sightings.saw(self.member_id, latest, cursor.began, fence=self.fence)
            self.counts["listed"] += len(latest)
            self.done += len(latest) - len(targets)
            self._save(targets, keep)

    def _leave_out(self, unreadable: Sequence[UnreadableEntry], cursor: Cursor) -> None:
        """Note unreadable entries of a listing as failed objects, if they have a pid: a later run fetches the pids."""
        self.unreadable |= {*unreadable}
        named = {pid: f"its entry in the listing: {reason}" for pid, reason in unreadable if pid}
        if cursor.kind == COMPLETE:
            self.sightings.saw(self.member_id, named, cursor.began, fence=self.fence)
        failing = self.catalog.failing(self.member_id, list(named))
        new = [Failed(ObjectToFetch(pid, None), reason, None) for pid, reason in named.items() if pid not in failing]
        self._store([], new, None)

    def _save(self, targets: Iterable[ObjectToFetch], cursor: Cursor | None) -> None:
        """Fetch objects and store them: each STORE_EVERY seconds or BATCH_BYTES, and at the end, also after an error.

        `cursor`: the position before the objects' page, stored with any part of the page; None: keep the stored one.
        """
        fetched: list[Fetched] = []
        failed: list[Failed] = []
        held, stored_at = 0, time.monotonic()
        try:
            for result in self.fetcher.fetch(targets):
                if isinstance(result, Failed):
                    failed.append(result)
                elif result is not None:
                    fetched.append(result)
                    held += len(result.metadata.document)
                self._step(result is not None)
                if held > BATCH_BYTES or (time.monotonic() - stored_at > STORE_EVERY and (fetched or failed)):
                    self._store(fetched, failed, cursor)
                    fetched, failed, held, stored_at = [], [], 0, time.monotonic()
        except BaseException:
            with suppress(Exception):  # _store refuses, for example, after a lost lease
                self._store(fetched, failed, cursor)
            raise
        self._store(fetched, failed, cursor)
        self.progress(min(self.done, self.total), self.total)

    def _step(self, arrived: bool) -> None:
        self.done += arrived
        if arrived and self.done % PROGRESS_EVERY == 0:
            self.progress(min(self.done, self.total), self.total)

    def _store(self, fetched: Sequence[Fetched], failed: Sequence[Failed], cursor: Cursor | None) -> None:
        self.check()
        new = self.catalog.store(
            self.member_id, fence=self.fence, fetched=fetched, failed=failed, cursor=cursor, now=self.clock()
        )
        self.counts.update(stored=len(fetched), failed=len(failed))
        self.pid_results |= {item.wanted.pid: STORED for item in fetched if item.wanted.pid in self.pid_results}
        self.pid_results |= {item.wanted.pid: item.reason for item in failed if item.wanted.pid in self.pid_results}
        self._report(new)

    def _report(self, new: Sequence[Failed]) -> None:
        """Report failed objects to the member, `report_limit` in a run at most.

        Stops once the member refuses a report, or has not accepted MOST_UNTAKEN reports in a row.
        """
        for item in new:
            if self.reports >= self.settings.report_limit or self.untaken >= MOST_UNTAKEN:
                return
            self.reports += 1
            try:
                self.client.report_error(item.wanted.pid, item.reason)
                self.untaken = 0
            except MemberNodeError as error:
                refused = isinstance(error, MemberRefused) or error.status == 501
                self.untaken += MOST_UNTAKEN if refused else 1

    def _raise_if_nothing_was_stored(self) -> None:
        """Raise the first error, if objects of the listing failed and none of them was stored or is unchanged."""
        if self.fetcher.first_error is not None and not self.counts["stored"] and not self.counts["unchanged"]:
            raise self.fetcher.first_error

    def _result(self, newest: datetime | None, complete: bool = False) -> SyncResult:
        faults = [self.difference] if self.difference else []
        if self.unreadable:
            pid, reason = min(self.unreadable)
            faults.append(f"unreadable entries in its listing: {len(self.unreadable)}, such as {pid!r}: {reason}")
            logger.warning("%s: %s", self.member_id, faults[-1])
        error = "; ".join(faults) or None
        self.catalog.ran(self.member_id, fence=self.fence, now=self.clock(), outcome="succeeded", error=error)
        report = {
            "complete": complete,
            "unreadable": len(self.unreadable),
            "last_harvested": newest,
            "pids": bounded(self.pid_results),
        }
        return SyncResult.model_validate({"member": self.member_id, "outcome": "succeeded", **report, **self.counts})


def _is_same(entry: ListedObject, known: Known, cursor: Cursor) -> bool:
    """True if this pass need not fetch the object: the catalog has it with the date and the facts of its entry.

    If the pass fetches all objects, the catalog must have stored the object in this pass: under `cursor.anew` or later.
    """
    is_new = cursor.anew is None or known.fence >= cursor.anew
    return is_new and entry.modified in known.dates and entry.entry == known.entry


def _is_postponed(entry: ListedObject, failure: tuple[datetime | None, datetime, datetime], cursor: Cursor) -> bool:
    """True if the object failed before, with the same date: it is fetched when its next try is due, not now.

    `failure`: the date in the listing at that failure (None: none), when the next try is due, when the object failed.
    """
    listed, _, failed_at = failure
    return listed == entry.modified and (cursor.anew is None or failed_at >= cursor.began)
