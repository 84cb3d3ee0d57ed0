"""Synchronize one member: nodelist, window, listing, system metadata, catalog, and at last the nodelist again.

* A window begins `overlap` before the date in the nodelist, and ends `margin` before now. A run does not fetch an
  object again that the catalog has under the same date, and whose entry in the listing says the same of its format,
  size and checksum. So the overlap costs a listing only, and a complete pass finds an object that was replaced without
  a new date. What no entry shows, such as that it is archived, takes a question for each object.
* A pass from the beginning of a member, which was reset or never harvested, fetches everything: what was stored before
  the pass began, and what failed before.
* The catalog stores each page with its cursor. A failed run resumes at the cursor if the nodelist has the same date as
  when the pass began. Otherwise an operator has reset the member, and the nodelist is right.
* A run tries a failed object again, then notes it, reports it to the member and leaves it to later runs. The rest go
  on. But where the member as a whole stays silent for longer than the run's patience, or one object after the other
  takes too long, the run fails. The next one goes on behind those objects, so that no member keeps a slot for long.
* What failed before comes after all that is new, and gets so much time: the next run goes on behind it.
* A run begins with a ping. Where the member does not answer at all, its ticks leave it alone for a while (silence.py).
* A run stores what it fetched each STORE_EVERY seconds, and however it ends.
* A complete pass notes what it saw, and asks the member for the objects that it did not see (gone.py).
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
from tasks.harvest.asked import CHANGES, COMPLETE, SyncRequest
from tasks.harvest.fetcher import Fetcher, Stalled
from tasks.harvest.gone import GoneSearch
from tasks.harvest.listing import ListingPages
from tasks.harvest.outcome import STORED, SyncResult, bounded, not_synchronizable
from tasks.harvest.patience import MemberPatience
from tasks.member_node.client import MemberNode, MemberNodeError, MemberRefused
from tasks.member_node.member import Member
from tasks.member_node.objects import ListedObject, UnreadableEntry
from tasks.nodelist.protocol import Dates, Nodelist
from tasks.settings import Settings

logger = logging.getLogger(__name__)

PORTION = 1000
"""The number of objects that a run compares and fetches at once. It stores them sooner where they are slow."""
BATCH_BYTES = 16 * 1024 * 1024
STORE_EVERY = 5.0
PROGRESS_EVERY = 100
UNHEARD = 3


def harvest_member(
    member: Member,
    *,
    client: MemberNode,
    catalog: Catalog,
    nodelist: Nodelist,
    fence: int,
    settings: Settings,
    asked: SyncRequest = CHANGES,
    progress: Callable[[int, int], object] = lambda done, total: None,
    check: Callable[[], object] = lambda: None,
    clock: Callable[[], datetime] = instants.now,
) -> SyncResult:
    """Fetch the pids that were asked for, whatever their date, then run the pass.

    A pid that fails is no failure of the pass. Where there is no pass, the run fails if none of the pids could be had.
    Before each write the run calls `check`, which raises for a lost lease.

    Raises MemberNodeError, Superseded, and the errors of `check`.
    """
    member_id = member.identifier
    patience = MemberPatience(client, settings)
    try:
        listed = nodelist.member(member_id)
        reason = "it is not in the nodelist, or not approved" if listed is None else listed.obstacle
        if listed is None or reason is not None:
            catalog.ran(member_id, fence=fence, now=clock(), outcome="not synchronizable", error=reason)
            return not_synchronizable(member_id, asked, str(reason))
        run = _Harvest(listed, client, catalog, nodelist, fence, settings, progress, check, clock, clock(), patience)
        patience.begin()
        outcome = run.run(asked)
        silence.end(catalog, member_id, fence=fence)
    except Exception as error:
        with suppress(SQLAlchemyError, Superseded):
            silence.after(
                error, patience.delivered_once, catalog, member_id, fence=fence, now=clock(), settings=settings
            )
            catalog.ran(member_id, fence=fence, now=clock(), outcome="failed", error=str(error))
        raise
    return outcome


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
    unheard: int = 0
    """The number of reports in a row that the member did not take."""
    ends: dict[str, str] = field(default_factory=dict)
    """The end of each pid that was asked for."""
    unreadable: set[UnreadableEntry] = field(default_factory=set)
    difference: str = ""
    """Of what the member counts, from what it lists."""

    @property
    def member_id(self) -> str:
        return self.listed.identifier

    @cached_property
    def sightings(self) -> Sightings:
        return Sightings(self.catalog.engine)

    def run(self, asked: SyncRequest) -> SyncResult:
        """First the pids: somebody waits for each of them."""
        if asked.pids:
            with Fetcher(self.client, self.settings, self.patience) as self.fetcher:  # its own, since it may be Stalled
                self.fetch_pids(asked.pids)
        if asked.kind is not None:
            with Fetcher(self.client, self.settings, self.patience) as self.fetcher:
                return self.run_pass(asked.kind)
        if asked.pids and self.fetcher.first_asked_error is not None and STORED not in self.ends.values():
            raise self.fetcher.first_asked_error
        return self._end(self.listed.last_harvested)

    def fetch_pids(self, pids: Sequence[str]) -> None:
        self.ends = dict.fromkeys(pids, "")
        self.total = self.counts["listed"] = len(self.ends)
        try:
            self._save([ObjectToFetch(pid, None) for pid in self.ends], None)
        except Stalled as error:
            left = [pid for pid, end in self.ends.items() if not end]
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
            self._page(page.entries, cursor._replace(position=page.cursor))
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
        outcome = self._end(newest, complete)
        written = self.nodelist.harvested(
            self.member_id,
            Dates(newest, self.began if complete else None),
            fence=self.fence,
            started_from=self.listed.harvested_until,
        )
        update = {"store": written} if written else {"outcome": "reset meanwhile"}
        return outcome.model_copy(update=update)

    def _old_failures(self) -> None:
        """Within the time that the settings grant them: the next run goes on behind those that were tried."""
        end = time.monotonic() + self.settings.failure_time
        while time.monotonic() < end and (due := self.catalog.due(self.member_id, self.began, PORTION)):
            self.total += len(due)
            try:
                self._save(takewhile(lambda _: time.monotonic() < end, due), None)
            except Stalled:  # everything else is stored, and the slow objects are noted again
                return

    def _newest(self, until: datetime) -> datetime | None:
        newest = self.catalog.newest(self.member_id, until)
        return None if newest is None else instants.floor(newest)

    def _cursor(self, kind: str, started_from: datetime) -> Cursor:
        """Where the pass goes on, or begins."""
        is_anew = self.listed.harvested_until <= instants.NEVER
        cursor = self.catalog.cursor(self.member_id, kind)
        if cursor is not None and cursor.started_from == started_from and is_anew == (cursor.anew is not None):
            return cursor
        since = instants.NEVER
        if kind != COMPLETE and not is_anew:
            since = started_from - timedelta(seconds=self.settings.overlap)
        return Cursor(kind, started_from, since, self.began, self.fence if is_anew else None)

    def _page(self, entries: Sequence[ListedObject], cursor: Cursor) -> None:
        for start in range(0, max(len(entries), 1), PORTION):
            latest = {entry.pid: entry for entry in entries[start : start + PORTION]}
            known = self.catalog.known(self.member_id, list(latest))
            failing = self.catalog.failing(self.member_id, list(latest))
            targets = []
            for entry in latest.values():
                if (one := known.get(entry.pid)) and _is_same(entry, one, cursor):
                    self.counts["unchanged"] += 1
                elif (failure := failing.get(entry.pid)) and _is_postponed(entry, failure, cursor):
                    self.counts["postponed"] += failure[1] > self.began  # the due ones come after the pages
                else:
                    targets.append(ObjectToFetch(entry.pid, entry.modified, entry.entry))
            if cursor.kind == COMPLETE:
                self.sightings.saw(self.member_id, latest, cursor.began, fence=self.fence)
            self.counts["listed"] += len(latest)
            self.done += len(latest) - len(targets)
            self._save(targets, cursor)

    def _leave_out(self, unreadable: Sequence[UnreadableEntry], cursor: Cursor) -> None:
        """An entry that names its object is a failure of that object: a later run fetches it by its name."""
        self.unreadable |= {*unreadable}
        named = {pid: f"its entry in the listing: {reason}" for pid, reason in unreadable if pid}
        if cursor.kind == COMPLETE:
            self.sightings.saw(self.member_id, named, cursor.began, fence=self.fence)
        failing = self.catalog.failing(self.member_id, list(named))
        new = [Failed(ObjectToFetch(pid, None), reason, None) for pid, reason in named.items() if pid not in failing]
        self._store([], new, None)

    def _save(self, targets: Iterable[ObjectToFetch], cursor: Cursor | None) -> None:
        """Fetch and store: each STORE_EVERY seconds, before the documents fill the memory, and however it ends.

        The cursor stands before the page, so that it may be stored with any part of the page.
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
            with suppress(Exception):  # such as that of a lost lease, with which nothing may be stored
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
        self.ends |= {item.wanted.pid: STORED for item in fetched if item.wanted.pid in self.ends}
        self.ends |= {item.wanted.pid: item.reason for item in failed if item.wanted.pid in self.ends}
        self._report(new)

    def _report(self, new: Sequence[Failed]) -> None:
        """Report failures to the member. One that refuses reports, or leaves UNHEARD in a row, gets no more of them."""
        for item in new:
            if self.reports >= self.settings.report_limit or self.unheard >= UNHEARD:
                return
            self.reports += 1
            try:
                self.client.report_error(item.wanted.pid, item.reason)
                self.unheard = 0
            except MemberNodeError as error:
                refused = isinstance(error, MemberRefused) or error.status == 501
                self.unheard += UNHEARD if refused else 1

    def _raise_if_nothing_was_stored(self) -> None:
        """A pass that stored nothing and met an error fails with that error."""
        if self.fetcher.first_error is not None and not self.counts["stored"] and not self.counts["unchanged"]:
            raise self.fetcher.first_error

    def _end(self, newest: datetime | None, complete: bool = False) -> SyncResult:
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
            "pids": bounded(self.ends),
        }
        return SyncResult.model_validate({"member": self.member_id, "outcome": "succeeded", **report, **self.counts})


def _is_same(entry: ListedObject, known: Known, cursor: Cursor) -> bool:
    """True if the catalog has the object as it is listed, and nobody wants it anew."""
    is_new = cursor.anew is None or known.fence >= cursor.anew
    return is_new and entry.modified in known.dates and entry.entry == known.entry


def _is_postponed(entry: ListedObject, failure: tuple[datetime | None, datetime, datetime], cursor: Cursor) -> bool:
    """True if a later run tries the object again, at its time."""
    listed, _, failed_at = failure
    return listed == entry.modified and (cursor.anew is None or failed_at >= cursor.began)
