"""List all objects that a member changed within a window, although the member keeps changing meanwhile.

Paging by offset loses objects when others move, so pages go by date: the next page begins at the greatest date seen,
and reads that date again. This needs a member that lists by date, which the protocol does not promise:

* A page out of order shows that a member does not. So does a remainder that shrank for no visible reason while the
  part already passed has grown. From then on the window is halved until each part fits into one answer.
* Where one instant has more objects than a page holds, they are paged by offset within that instant. This begins again
  until one pass agrees with its own total, or two passes agree with each other.
* Where a member refuses every parameter but fromDate, the client sends that one alone.

Each page carries the cursor before it: every older object is listed. A run that resumes there lists this page twice
and misses nothing.
"""

from collections.abc import Generator, Iterator
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from tasks.harvest.patience import Patience
from tasks.member_node.client import Failing, Malformed, MemberNode, MemberNodeError, MemberRefused
from tasks.member_node.instants import TICK, floor
from tasks.member_node.objects import ListedObject, Listing

PASSES = 5


class Page(NamedTuple):
    entries: list[ListedObject]
    cursor: datetime
    total: int
    """The number of objects left in the window, these included, as the member tells it."""


class Step(NamedTuple):
    """The way from one page by date to the next."""

    low: datetime
    high: datetime
    seen: int
    remainder: int


class Pages:
    """To be iterated once. Raises MemberNodeError."""

    def __init__(self, client: MemberNode, since: datetime, until: datetime, size: int, patience: Patience) -> None:
        self._client, self._size, self._patience = client, size, patience
        self._windows = [(floor(since), floor(until))] if floor(since) < floor(until) else []  # the last is next
        self._sliced = True
        self._by_date = True
        self._step: Step | None = None
        self._passed: frozenset[ListedObject] = frozenset()  # entries of the instant at which the last page ended

    def __iter__(self) -> Iterator[Page]:
        while self._windows:
            low, high = self._windows.pop()
            listing = self._ask(low, high, 0)
            step, self._step = self._step, None
            if step is not None and self._missed(step, listing):
                self._by_date = False
                self._windows += [(low, high), (step.low, step.high)]
            else:
                yield from self._page(low, high, listing)

    def _page(self, low: datetime, high: datetime, listing: Listing) -> Iterator[Page]:
        entries, total = listing
        fresh = [entry for entry in entries if entry.modified < high and entry not in self._passed]
        page = Page(fresh, low, total - sum(entry in self._passed for entry in entries))
        self._passed = frozenset()
        if len(entries) >= total:
            yield page
            return
        if not entries:
            raise self._malformed(f"claims {total} objects and lists none")
        ordered = self._by_date and all(one.modified <= other.modified for one, other in pairwise(entries))
        last = min(floor(entries[-1].modified), high)
        if ordered and last > low:
            yield page
            if last < high:
                seen = sum(entry.modified < last for entry in entries)
                self._step = Step(low, last, seen, total - seen)
                self._passed = frozenset(entries[seen:])
                self._windows.append((last, high))
        elif not self._sliced:
            raise self._malformed(f"lists {len(entries)} of {total} objects, and offers no way to the others")
        elif high - low <= TICK:
            yield from self._instant(low, high)
        elif ordered and last == low:
            self._windows += [(low + TICK, high), (low, low + TICK)]
        elif any(entry.modified >= high for entry in entries):
            raise self._malformed("neither lists by date nor respects toDate")
        else:
            middle = floor(low + (high - low) / 2)
            self._windows += [(middle, high), (low, middle)]

    def _ask(self, low: datetime, high: datetime, start: int, count: int | None = None) -> Listing:
        if not self._sliced:
            return self._patience.ask(lambda: self._client.objects(low))
        size = self._size if count is None else count
        try:
            return self._patience.ask(lambda: self._client.objects(low, high, start, size))
        except (MemberRefused, Failing) as error:
            if start or error.status not in (400, 501):
                raise
            try:
                listing = self._client.objects(low)
            except MemberNodeError:
                raise error from None
            self._sliced = False
            return listing

    def _missed(self, step: Step, listing: Listing) -> bool:
        """Does the part just passed hold more objects than were seen? Asks the member only if the remainder shrank."""
        if listing.total >= step.remainder:
            return False
        if not self._sliced:  # then no part can be asked for alone
            raise self._malformed("lists neither by date nor in slices")
        return self._ask(step.low, step.high, 0, count=1).total > step.seen

    def _instant(self, low: datetime, high: datetime) -> Iterator[Page]:
        before: set[str] | None = None
        for _ in range(PASSES):
            pids, total = yield from self._offsets(low, high)
            if total is not None and (len(pids) == total or pids == before):
                return
            before = pids
        raise self._malformed(f"keeps changing: {PASSES} passes over one instant, {low}, disagree")

    def _offsets(self, low: datetime, high: datetime) -> Generator[Page, None, tuple[set[str], int | None]]:
        """One pass: the pids seen, and their total. None for a total that changed on the way."""
        pids: set[str] = set()
        start, total = 0, None
        while True:
            try:
                listing = self._ask(low, high, start)
            except MemberRefused as error:
                if start and error.status == 400:
                    return pids, None  # the total fell below the offset
                raise
            if total is not None and listing.total != total:
                return pids, None
            total = listing.total
            yield Page([entry for entry in listing.entries if entry.modified < high], low, total)
            pids.update(entry.pid for entry in listing.entries)
            start += len(listing.entries)
            if start >= total:
                return pids, total
            if not listing.entries:
                return pids, None

    def _malformed(self, message: str) -> Malformed:
        return Malformed(message, self._client.member.identifier, f"{self._client.member.base_url}/object")
