"""Synchronize one member: nodelist, window, listing, system metadata, catalog; the last act is the nodelist's.

* A window begins `overlap` before what the nodelist says was harvested, and ends `margin` before now. What the catalog
  has under the same date is not fetched again, so looking back costs a listing only.
* Each page is stored with the cursor it stands on. A run that fails resumes there, as long as the nodelist still says
  what it said when the pass began; otherwise an operator has reset the member, and the nodelist is right.
* An object that fails is tried again within the run, then noted, reported to the member and left to later runs. The
  rest go on, unless the member as a whole turns out not to answer, or one object after the other takes too long: then
  the run ends as failed, and the next one goes on behind them, so that no member keeps a slot for long.
* lastHarvested becomes the date of the newest object stored, once all before it is stored or noted as failed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import SQLAlchemyError

from tasks import instants
from tasks.catalog import Catalog, Cursor, Dates, Failed, Fetched, StaleFence, Wanted
from tasks.fetching import Fetcher, Stalled
from tasks.listing import Pages
from tasks.member import Member
from tasks.membernode import MemberNode
from tasks.nodelist import Nodelist
from tasks.objects import Entry
from tasks.settings import Settings

PORTION = 1000
"""How many objects are compared with the catalog, fetched and stored in one go."""
BATCH_BYTES = 16 * 1024 * 1024
PROGRESS_EVERY = 100


class Outcome(BaseModel):
    """How a run ended. `unchanged` were there already, `postponed` failed before and are left to a later run."""

    model_config = ConfigDict(frozen=True)

    member: str
    outcome: Literal["succeeded", "not synchronizable", "reset meanwhile"]
    reason: str | None = None
    complete: bool = False
    listed: int = 0
    stored: int = 0
    unchanged: int = 0
    postponed: int = 0
    failed: int = 0
    last_harvested: datetime | None = None
    store: str | None = None
    """Of the dates: "written", or why the nodelist's permanent store lacks them yet; None where there were none."""


def harvest(
    member: Member,
    *,
    client: MemberNode,
    catalog: Catalog,
    nodelist: Nodelist,
    fence: int,
    settings: Settings,
    pids: Iterable[str] | None = None,
    complete: bool = False,
    progress: Callable[[int, int], object] = lambda done, total: None,
    check: Callable[[], object] = lambda: None,
    clock: Callable[[], datetime] = instants.now,
) -> Outcome:
    """Everything that changed, or just `pids`. `check` raises when the lease is lost; it is asked before each write.

    Raises MemberNodeError, StaleFence, and what `check` raises.
    """
    node_id = member.identifier
    try:
        said = nodelist.member(node_id)
        reason = "it is not in the nodelist, or not approved" if said is None else said.obstacle
        if said is None or reason is not None:
            catalog.ran(node_id, fence=fence, now=clock(), outcome="not synchronizable", error=reason)
            return Outcome(member=node_id, outcome="not synchronizable", reason=reason)
        with Fetcher(client, settings) as fetcher:
            run = _Run(said, client, catalog, nodelist, fence, settings, fetcher, progress, check, clock, clock())
            return run.everything(complete) if pids is None else run.these(pids)
    except Exception as error:
        with suppress(SQLAlchemyError, StaleFence):
            catalog.ran(node_id, fence=fence, now=clock(), outcome="failed", error=str(error))
        raise


@dataclass
class _Run:
    said: Member
    client: MemberNode
    catalog: Catalog
    nodelist: Nodelist
    fence: int
    settings: Settings
    fetcher: Fetcher
    progress: Callable[[int, int], object]
    check: Callable[[], object]
    clock: Callable[[], datetime]
    began: datetime
    counts: Counter[str] = field(default_factory=Counter)
    done: int = 0
    total: int = 0
    reports: int = 0

    @property
    def node_id(self) -> str:
        return self.said.identifier

    def these(self, pids: Iterable[str]) -> Outcome:
        wanted = [Wanted(pid, None) for pid in dict.fromkeys(pids)]
        self.total = self.counts["listed"] = len(wanted)
        self._save(wanted, None)
        return self._end(self.said.last_harvested)

    def everything(self, complete: bool) -> Outcome:
        kind = "complete" if complete else "increment"
        started_from = (self.said.last_complete_harvest or instants.NEVER) if complete else self.said.harvested_until
        until = instants.floor(self.began - timedelta(seconds=self.settings.margin))
        for page in Pages(self.client, self._since(kind, started_from), until, self.settings.page_size):
            self.check()
            self.total = max(self.total, self.done + page.total)
            self._page(page.entries, Cursor(kind, started_from, page.cursor))
        while due := self.catalog.due(self.node_id, self.began, PORTION):
            self.total += len(due)
            try:
                self._save(due, None)
            except Stalled:  # all else is there, and what was waited for is noted again
                break
        self.check()
        self.catalog.finish(self.node_id, kind, fence=self.fence)
        newest = self._newest(until)
        outcome = self._end(newest, complete)
        written = self.nodelist.harvested(
            self.node_id,
            Dates(newest, self.began if complete else None),
            fence=self.fence,
            started_from=self.said.harvested_until,
        )
        update = {"store": written} if written else {"outcome": "reset meanwhile"}
        return outcome.model_copy(update=update)

    def _newest(self, until: datetime) -> datetime | None:
        newest = self.catalog.newest(self.node_id, until)
        return None if newest is None else instants.floor(newest)

    def _since(self, kind: str, started_from: datetime) -> datetime:
        cursor = self.catalog.cursor(self.node_id, kind)
        if cursor is not None and cursor.started_from == started_from:
            return cursor.position
        if kind == "complete" or started_from <= instants.NEVER:
            return instants.NEVER
        return started_from - timedelta(seconds=self.settings.overlap)

    def _page(self, entries: Sequence[Entry], cursor: Cursor) -> None:
        for start in range(0, max(len(entries), 1), PORTION):
            latest = {entry.pid: entry for entry in entries[start : start + PORTION]}
            known = self.catalog.known(self.node_id, list(latest))
            failing = self.catalog.failing(self.node_id, list(latest))
            wanted = []
            for pid, modified in latest.values():
                if modified in known.get(pid, ()):
                    self.counts["unchanged"] += 1
                elif pid in failing and failing[pid][0] == modified:  # what is due comes after the pages
                    self.counts["postponed"] += failing[pid][1] > self.began
                else:
                    wanted.append(Wanted(pid, modified))
            self.counts["listed"] += len(latest)
            self.done += len(latest) - len(wanted)
            self._save(wanted, cursor)

    def _save(self, wanted: Sequence[Wanted], cursor: Cursor | None) -> None:
        """Fetch and store: in one transaction, unless the documents are too large to be held at once."""
        fetched: list[Fetched] = []
        failed: list[Failed] = []
        held = 0
        try:
            for one in self.fetcher.fetch(wanted):
                if isinstance(one, Failed):
                    failed.append(one)
                else:
                    fetched.append(one)
                    held += len(one.metadata.document)
                self.done += 1
                if self.done % PROGRESS_EVERY == 0:
                    self.progress(min(self.done, self.total), self.total)
                if held > BATCH_BYTES:
                    self._store(fetched, failed, cursor)
                    fetched, failed, held = [], [], 0
        except Stalled:
            self._store(fetched, failed, None)  # so that the next run goes on behind them
            raise
        self._store(fetched, failed, cursor)
        self.progress(min(self.done, self.total), self.total)

    def _store(self, fetched: Sequence[Fetched], failed: Sequence[Failed], cursor: Cursor | None) -> None:
        self.check()
        new = self.catalog.store(
            self.node_id, fence=self.fence, fetched=fetched, failed=failed, cursor=cursor, now=self.clock()
        )
        self.counts.update(stored=len(fetched), failed=len(failed))
        for one in new[: self.settings.report_limit - self.reports]:
            if not self.client.report_error(one.wanted.pid, one.reason):
                self.reports = self.settings.report_limit  # it does not want to know
                return
            self.reports += 1

    def _end(self, newest: datetime | None, complete: bool = False) -> Outcome:
        """What succeeded in nothing has failed, though all of it is noted."""
        counts = self.counts
        if self.fetcher.first_error is not None and not counts["stored"] and not counts["unchanged"]:
            raise self.fetcher.first_error
        self.catalog.ran(self.node_id, fence=self.fence, now=self.clock(), outcome="succeeded")
        return Outcome.model_validate(
            {"member": self.node_id, "outcome": "succeeded", "complete": complete, "last_harvested": newest, **counts}
        )
