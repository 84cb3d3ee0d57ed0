"""Decides which instant of an entry is due, and what becomes of instants that no beat sent.

The first instant after the last instant that a beat took is due. A beat that lags by up to `LAG` takes one instant
after the other and leaves no gap. Earlier instants were missed while no beat ran: the entry's `misfire` says what
becomes of them.

An entry may have missed millions of instants, and a schedule has only `next`. So a binary search over the time finds
the latest; single instants are counted for at most `COUNTED` steps, or `catch_up`.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from math import inf

from coordinator.jobs.request import JobRequest
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.schedules import Schedule
from coordinator.store.times import EPOCH, to_ms

LAG = timedelta(seconds=10)
COUNTED = 1000  # at most so many instants are counted
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Due:
    """An instant to take. `sent`: False where the beat passes over it.

    `missed`: the number of instants before it that nobody sends, or up to it where it is not sent; COUNTED means so
    many or more.
    """

    instant: datetime
    sent: bool = True
    missed: int = 0


class EntryPlan:
    """An entry, and how far this beat is with it. Nothing is due before `count_from` sets the last instant taken.

    `unsent`: the tick that this beat took and has not sent; `sent`: its last tick. `made_up`: missed instants up to
    this instant are sent.
    """

    def __init__(self, entry: Entry, other: str = "") -> None:
        self.entry = entry
        self.other = other  # the schedule that an operator gave it, '' = its own
        self.schedule = entry.planned(other)
        self.hash = entry.hash(entry.planned() if other else self.schedule)
        self.unsent: datetime | None = None
        self.sent: datetime | None = None
        self.rest_until = 0.0
        self.place = 0  # its number in the agenda; 0: it is not there
        self.draft: JobRequest | None = None
        self.last: datetime | None = None
        self.next: datetime | None = None
        self.at: datetime | None = None
        self.made_up = EPOCH

    def after(self, former: EntryPlan | None) -> EntryPlan:
        """Take the place of the former plan, and return this one; return the former where both mean the same."""
        if former is None:
            return self
        if (former.hash, former.other) == (self.hash, self.other):
            return former
        self.unsent, self.sent = former.unsent, former.sent
        return self

    @property
    def about(self) -> str:
        return self.entry.about(self.entry.planned() if self.other else self.schedule)

    def count_from(self, last: datetime) -> None:
        self.last, self.next = last, self.schedule.next(last)
        self.at = None if self.next is None else self.fires(self.next)

    def fires(self, instant: datetime) -> datetime:
        """The time at which the instant is sent: the instant and its jitter."""
        return instant + jitter_of(self.entry.name, instant, self.entry.jitter)

    def due(self, now: datetime, grace: timedelta) -> Due | None:
        if self.unsent:
            return Due(EPOCH)
        if self.next is None or self.at is None or self.at > now:
            return None
        if now - self.at <= LAG:
            return Due(self.next)
        missed = _Missed(self.schedule, self.next, self.fires, timedelta(seconds=self.entry.jitter))
        if self.entry.misfire == "once":
            return missed.latest(now, grace)
        if self.entry.misfire == "skip":
            return missed.passed(now - LAG)
        if self.at < now - grace:
            return missed.passed(now - grace)
        if self.next > self.made_up:
            self.made_up, _ = missed.before(now - LAG)
            if rest := missed.all_but(self.entry.catch_up, self.made_up + _MS):
                return rest
        return Due(self.next)


class Agenda:
    """A heap of plans by when the beat looks at each next. An outdated place is dropped when its time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, EntryPlan]] = []
        self._count = 0

    def put(self, at: float, plan: EntryPlan) -> None:
        self._count += 1
        plan.place = self._count
        heapq.heappush(self._heap, (at, plan.place, plan))

    def clear(self) -> None:
        while self._heap:
            self._heap.pop()[2].place = 0

    def take(self, now: float, most: int) -> list[EntryPlan]:
        """Take out at most `most` plans whose time has come, the earliest first."""
        plans: list[EntryPlan] = []
        while self._heap and self._heap[0][0] <= now and len(plans) < most:
            _, place, plan = heapq.heappop(self._heap)
            if plan.place == place:
                plan.place = 0
                plans.append(plan)
        return plans

    def next(self) -> float:
        return self._heap[0][0] if self._heap else inf


def number(missed: int) -> str:
    """The number of missed instants, for people."""
    return f"{missed} or more" if missed >= COUNTED else str(missed)


def jitter_of(name: str, instant: datetime, most: float) -> timedelta:
    """0 to `most` seconds, the same in all beats."""
    if not most:
        return timedelta(0)
    part = int(hashlib.sha256(f"{name}@{to_ms(instant)}".encode()).hexdigest()[:8], 16) / 2**32
    return timedelta(milliseconds=round(part * most * 1000))


@dataclass(frozen=True)
class _Missed:
    """The missed instants, from `first` on. `fires`: when an instant is to be sent, at most `jitter` later."""

    schedule: Schedule
    first: datetime
    fires: Callable[[datetime], datetime]
    jitter: timedelta

    def before(self, end: datetime) -> tuple[datetime, bool]:
        """An instant that was to be sent before `end`, as all before it were; True if it is the last of these."""
        at = max(self.first, self._left(0, end - self.jitter))
        for _ in range(COUNTED):
            following = self.schedule.next(at)
            if following is None or self.fires(following) >= end:
                return at, True
            at = following
        return at, False

    def latest(self, now: datetime, grace: timedelta) -> Due:
        """Send the latest of them, late; pass over it where it is too old."""
        at, is_last = self.before(now + timedelta.resolution)
        if not is_last or self.fires(at) < now - grace:
            return self._pass(at)
        return Due(at, missed=self._count(at))

    def passed(self, end: datetime) -> Due:
        """Pass over all instants that were to be sent before `end`."""
        return self._pass(self.before(end)[0])

    def all_but(self, most: int, end: datetime) -> Due | None:
        """Pass over all but the last `most` instants before `end`; None where there are no more than that."""
        at = self._left(most, end)
        return self._pass(at) if at >= self.first else None

    def _pass(self, at: datetime) -> Due:
        return Due(at, sent=False, missed=self._count(at + _MS))

    def _count(self, end: datetime) -> int:
        return _length(self._after(self.first - _MS, end), COUNTED)

    def _left(self, most: int, end: datetime) -> datetime:
        """The instant after which the last `most` before `end` come; a time before `first` where there is none."""
        start = self.first - _MS
        spans = range((end - start) // _MS)
        return start + _MS * bisect_left(
            spans, True, key=lambda span: _length(self._after(start + _MS * span, end), most + 1) <= most
        )

    def _after(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return takewhile(lambda at: at < end, _instants(self.schedule, start))


def _instants(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    at = schedule.next(after)
    while at is not None:
        yield at
        at = schedule.next(at)


def _length(instants: Iterator[datetime], most: int) -> int:
    return sum(1 for _ in islice(instants, most))
