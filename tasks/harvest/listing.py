"""Lists all objects that a member changed within a window of dates, although objects keep changing meanwhile.

Paging by offset misses objects when other objects change, and so move. Therefore pages go by date: the next page begins
at the greatest date of the page before, and lists that date again. This needs a member that lists by date, which the
protocol does not promise:

* A page out of order shows that the member does not list by date. So does a total of the rest that has shrunk, while
  the part already listed has grown. From then on the window is halved until each part fits into one answer.
* If one instant has more objects than a page holds, they are paged by offset within that instant. This is repeated
  until the pages list as many objects as the member counts, or list the same objects twice in a row.
* If a member refuses every parameter but fromDate, the requests have that parameter alone.
* If the member takes too long for a page, or the page is too large, this and all later pages are half as large.
* A member may count more objects than it lists, such as objects that the service may not see. So a greater count does
  not prove that objects are missing. A part is complete if the member lists as many objects as it counts; or if it
  lists nothing after them, and then the same objects again. (An object that has changed never gets its old date back.)
* An unreadable entry counts as listed, and is left out. If a page has unreadable entries only, the window is paged by
  offset.
* If an entry makes a page invalid XML, the page is requested in halves, down to that entry.

Each page comes with a cursor, the date at which it begins: every older object is listed. A run that resumes there lists
this page twice and misses nothing.
"""

from collections.abc import Generator, Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tasks.harvest.patience import MemberPatience
from tasks.instants import TICK, brief, floor
from tasks.member_node.client import (
    Failing,
    Malformed,
    MemberNode,
    MemberNodeError,
    MemberRefused,
    MemberTimedOut,
    TooLarge,
)
from tasks.member_node.objects import ListedObject, Listing, UnreadableEntry
from tasks.settings import Settings

PASSES = 5
MOST_SPOILT = 100
"""The most entries in one run that may be invalid XML. Where there are more, the listing fails."""


class ListingPage(NamedTuple):
    entries: list[ListedObject]
    cursor: datetime
    total: int
    """The number of objects from this page to the end of its window, by the member's count."""
    unreadable: tuple[UnreadableEntry, ...] = ()


class PageStep(NamedTuple):
    """The part of a window that one page has listed, from `low` to `high`, for a check with the next page.

    `seen`: the number of entries of that part. `remainder`: the number of objects after it, by the member's count.
    """

    low: datetime
    high: datetime
    seen: int
    remainder: int


class ListingPages:
    """An iterator over the pages of a member's listing, for the window from `since` to before `until`. Use it once.

    Raises MemberNodeError where the member fails, or lists in a way that would miss objects.
    """

    def __init__(
        self, client: MemberNode, since: datetime, until: datetime, settings: Settings, patience: MemberPatience
    ) -> None:
        self._client, self._size, self._patience = client, settings.page_size, patience
        self._windows = [(floor(since), floor(until))] if floor(since) < floor(until) else []  # a stack
        self._sliced = True  # the member accepts parameters besides fromDate
        self._by_date = True  # the member seems to list its objects by date
        self._step: PageStep | None = None
        self._spoilt = 0
        self._passed: frozenset[ListedObject] = frozenset()  # entries at the end of the last page, which come again
        self._longest = -1  # most entries on a page so far, since a member may have a page size of its own
        self.difference = ""
        """A sentence about the first part where the member counts more objects than it lists; empty: there is none."""

    def __iter__(self) -> Iterator[ListingPage]:
        while self._windows:
            low, high = self._windows.pop()
            listing = self._ask(low, high, 0)
            step, self._step = self._step, None
            if step is not None and self._missed(step, listing):
                self._by_date = False
                self._windows += [(low, high), (step.low, step.high)]
            else:
                yield from self._page(low, high, listing)

    def _page(self, low: datetime, high: datetime, listing: Listing) -> Iterator[ListingPage]:
        entries, total, unreadable = listing
        fresh = [entry for entry in entries if entry.modified < high and entry not in self._passed]
        page = ListingPage(fresh, low, total - sum(entry in self._passed for entry in entries), unreadable)
        self._passed = frozenset()
        if listing.number >= total or self._is_all(low, high, listing):
            yield page
            return
        ordered = (
            bool(entries)
            and self._by_date
            and all(before.modified <= after.modified for before, after in pairwise(entries))
        )
        last = min(floor(entries[-1].modified), high) if entries else low
        if ordered and last > low:
            yield page
            if last < high:
                seen = sum(entry.modified < last for entry in entries)
                passed = seen + len(unreadable)
                self._step = PageStep(low, last, passed, total - passed)
                self._passed = frozenset(entries[seen:])
                self._windows.append((last, high))
        elif not self._sliced:
            raise self._malformed(f"lists {listing.number} of {total} objects, and gives no access to the others")
        elif high - low <= TICK or not entries:
            yield from self._instant(low, high)
        elif ordered and last == low:
            self._windows += [(low + TICK, high), (low, low + TICK)]
        elif any(entry.modified >= high for entry in entries) or all(entry.modified < low for entry in entries):
            raise self._malformed("neither lists by date nor respects fromDate and toDate")
        else:
            middle = floor(low + (high - low) / 2)
            self._windows += [(middle, high), (low, middle)]

    def _ask(self, low: datetime, high: datetime, start: int, count: int | None = None) -> Listing:
        if not self._sliced:
            return self._patience.call(lambda: self._client.objects(low))
        try:
            return self._slice(low, high, start, count)
        except (MemberRefused, Failing) as error:
            if start or error.status not in (400, 501):
                raise
            try:
                listing = self._client.objects(low)
            except MemberNodeError:
                raise error from None
            self._sliced = False
            return listing

    def _slice(self, low: datetime, high: datetime, start: int, count: int | None) -> Listing:
        while True:
            size = count or self._size
            try:
                return self._patience.call(partial(self._client.objects, low, high, start, size))
            except Malformed as error:
                if error.total is None:
                    raise
                return self._around(error, low, high, start, min(size, error.total - start))
            except (MemberTimedOut, TooLarge):
                if size == 1 or count:
                    raise
                self._client.objects(low, high, start, 1)  # raises where the member hangs even for one entry
                self._size = size // 2

    def _around(self, error: Malformed, low: datetime, high: datetime, start: int, size: int) -> Listing:
        """Request a page that is invalid XML in halves, down to the entry that spoils it: that counts as unreadable.

        `error`: of the page; raised where too many entries are invalid, or where the halves never fit together.
        """
        if size <= 1:
            self._spoilt += 1
            if size < 1 or self._spoilt > MOST_SPOILT:
                raise error
            return Listing([], error.total or 0, (UnreadableEntry("", error.message),))
        half = size // 2
        for _ in range(PASSES):
            first, rest = (self._slice(low, high, *part) for part in ((start, half), (start + half, size - half)))
            if first.total == rest.total:
                return Listing(first.entries + rest.entries, rest.total, first.unreadable + rest.unreadable)
        raise error

    def _is_all(self, low: datetime, high: datetime, listing: Listing) -> bool:
        """True if `listing` has all objects from `low` to `high`, although the member counts more."""
        number, longest = listing.number, self._longest
        self._longest = max(longest, number)
        if not self._sliced:
            is_all = number < longest
        elif number >= self._size or number == longest:  # a full page, so the next page is requested anyway
            return False
        else:
            is_all = self._ends(low, high, number) and self._ask(low, high, 0) == listing
        if is_all:
            self._differs(low, high, listing.total, number)
        return is_all

    def _ends(self, low: datetime, high: datetime, start: int) -> bool:
        """True if the member lists nothing from the offset `start` on: an empty page, or a refusal of the offset."""
        try:
            return not self._ask(low, high, start, count=1).number
        except MemberRefused as error:
            if not start or error.status != 400:
                raise
            return True

    def _differs(self, low: datetime, high: datetime, counted: int, listed: int) -> None:
        if listed < counted:
            words = f"its listing counts {counted} objects and has {listed}, from {brief(low)} on"
            self.difference = self.difference or words

    def _missed(self, step: PageStep, listing: Listing) -> bool:
        """True if the part before `listing` has objects that were not listed. `step`: that part, as it was listed.

        Requests that part again only if the member now counts fewer objects after it than before.
        """
        if listing.total >= step.remainder:
            return False
        if not self._sliced:  # the member accepts fromDate only, so the part cannot be requested alone
            raise self._malformed("lists neither by date nor in slices")
        return not self._ends(step.low, step.high, step.seen)

    def _instant(self, low: datetime, high: datetime) -> Iterator[ListingPage]:
        before: set[str] | None = None
        for _ in range(PASSES):
            pids, total, listed = yield from self._offsets(low, high)
            if total is not None and (len(pids) == total or pids == before):
                self._differs(low, high, total, listed)
                return
            before = pids
        raise self._malformed(f"keeps changing: {PASSES} passes over one instant, {low}, disagree")

    def _offsets(self, low: datetime, high: datetime) -> Generator[ListingPage, None, tuple[set[str], int | None, int]]:
        """Page by offset through the objects from `low` to before `high`.

        Returns their pids, the member's count (None: it changed on the way), and the number of listed entries.
        """
        pids: set[str] = set()
        start, total, before = 0, None, list[ListedObject]()
        while True:
            try:
                listing = self._ask(low, high, start)
            except MemberRefused as error:
                if start and error.status == 400:
                    return pids, total, start  # the member has fewer objects than it counted, now or always
                raise
            if total is not None and listing.total != total:
                return pids, None, start
            if listing.entries and listing.entries == before:
                raise self._malformed(f"lists the same {len(before)} objects from start={start} as before")
            total, before = listing.total, listing.entries
            yield ListingPage([entry for entry in before if entry.modified < high], low, total, listing.unreadable)
            pids.update(entry.pid for entry in before)
            pids.update(f"{start} {place}" for place, _ in enumerate(listing.unreadable))
            start += listing.number
            if start >= total or not listing.number:
                return pids, total, start

    def _malformed(self, message: str) -> Malformed:
        return Malformed(message, self._client.member.identifier, f"{self._client.member.base_url}/object")
