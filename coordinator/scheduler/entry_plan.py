"""Decides which instant of an entry is due, and which of the instants that no beat sent are sent later.

The first instant after the last one that a beat took is due. A beat that is late by up to `LAG` sends each instant in
turn. Instants that are older were missed, since no beat ran: the entry's `misfire` says which of these are sent.

An entry may have missed millions of instants, and a schedule has only the method `next`. So the latest missed instant
is found by a binary search over the time; instants are counted one by one up to `COUNTED`, or up to `catch_up`.
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

from coordinator.core.jobs.request import JobRequest
from coordinator.core.store.times import EPOCH, to_ms
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.schedules import Schedule

LAG = timedelta(seconds=10)  # an instant that is later than this was missed
COUNTED = 1000  # the most instants that are counted one by one
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Due:
    """An instant that a beat should take. `sent`: True: send a tick for it; False: only note it and all before it as
    missed.

    `missed`: the number of earlier instants that are not sent, plus this one if `sent` is False; 1000 means 1000 or
    more. `instant` 1970 (EPOCH) stands for the tick that a beat took and did not send, which Redis knows.
    """

    instant: datetime
    sent: bool = True
    missed: int = 0


class EntryPlan:
    """An entry, and what this beat knows about its ticks. Nothing is due until `count_from` sets `last`.

    `last`: the last instant that any beat took; `next`: the one after; `at`: when `next` is sent, jitter included.
    `unsent`: the instant that this beat took and has not sent yet; `sent`: the last one that it published. `made_up`:
    with misfire `all`, the last of the missed instants that are being sent. `rest_until`: monotonic time before which
    the beat leaves the entry alone. `draft`: the job that all ticks share. `other`: the schedule that an operator set.
    """

    def __init__(self, entry: Entry, other: str = "") -> None:
        self.entry = entry
        self.other = other  # text of the schedule that an operator set, '' = none
        self.schedule = entry.planned(other)
        self.hash = entry.hash(entry.planned() if other else self.schedule)
        self.unsent: datetime | None = None
        self.sent: datetime | None = None
        self.rest_until = 0.0
        self.place = 0  # number of the plan's valid item in the agenda; 0: none
        self.draft: JobRequest | None = None
        self.last: datetime | None = None
        self.next: datetime | None = None
        self.at: datetime | None = None
        self.made_up = EPOCH

    def after(self, former: EntryPlan | None) -> EntryPlan:
        """Decide between this plan and the `former` plan of the same entry. Returns `former` if entry and schedule are
        the same, else this plan, which takes over the unsent and the sent tick.
        """
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
        """The time at which a tick for `instant` is sent: the instant plus the entry's jitter."""
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
    """A heap of plans, ordered by the time at which the beat must look at each next.

    heapq cannot remove an item from the middle: if a plan is put in again, its former item stays, and `take` drops it.
    """

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
        """Remove and return at most `most` plans whose time is not after `now` (seconds since 1970), the earliest
        first.
        """
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
    """A number of missed instants as text: `1000 or more`, since counting ends there, or the number."""
    return f"{missed} or more" if missed >= COUNTED else str(missed)


def jitter_of(name: str, instant: datetime, most: float) -> timedelta:
    """The delay of a tick: 0 to `most` seconds, computed from a hash of entry and instant, so the same in all beats."""
    if not most:
        return timedelta(0)
    part = int(hashlib.sha256(f"{name}@{to_ms(instant)}".encode()).hexdigest()[:8], 16) / 2**32
    return timedelta(milliseconds=round(part * most * 1000))


@dataclass(frozen=True)
class _Missed:
    """The instants of an entry that no beat sent, from `first` on. `fires(instant)`: the time at which an instant would
    have been sent, which is at most `jitter` later.
    """

    schedule: Schedule
    first: datetime
    fires: Callable[[datetime], datetime]
    jitter: timedelta

    def before(self, end: datetime) -> tuple[datetime, bool]:
        """Find the last instant that was to be sent before `end`. Returns it and True; or, where jitter hides it behind
        more than 1000 instants, an earlier one and False. All instants before the returned one were to be sent before
        `end`.
        """
        at = max(self.first, self._left(0, end - self.jitter))
        for _ in range(COUNTED):
            following = self.schedule.next(at)
            if following is None or self.fires(following) >= end:
                return at, True
            at = following
        return at, False

    def latest(self, now: datetime, grace: timedelta) -> Due:
        """Send the latest missed instant; if it is older than `grace`, note it as missed."""
        at, is_last = self.before(now + timedelta.resolution)
        if not is_last or self.fires(at) < now - grace:
            return self._pass(at)
        return Due(at, missed=self._count(at))

    def passed(self, end: datetime) -> Due:
        """Note all instants that were to be sent before `end` as missed."""
        return self._pass(self.before(end)[0])

    def all_but(self, most: int, end: datetime) -> Due | None:
        """Note all instants before `end` but the last `most` as missed; None if there are no more than `most`."""
        at = self._left(most, end)
        return self._pass(at) if at >= self.first else None

    def _pass(self, at: datetime) -> Due:
        return Due(at, sent=False, missed=self._count(at + _MS))

    def _count(self, end: datetime) -> int:
        return _length(self._after(self.first - _MS, end), COUNTED)

    def _left(self, most: int, end: datetime) -> datetime:
        """Find by binary search the instant after which exactly `most` instants come before `end`; a time before
        `first` if there are no more than `most`.
        """
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
