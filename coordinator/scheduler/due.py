"""Which instant of an entry is due, and what becomes of those that no beat sent.

The first instant after the last one taken is due. A beat that lags by up to `LAG` takes one instant after the other and
leaves no gap. Earlier instants were missed while no beat ran: the entry's `misfire` says what becomes of them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from coordinator.jobs.request import JobRequest
from coordinator.scheduler.entries import Entry
from coordinator.scheduler.schedules import Schedule
from coordinator.store.times import EPOCH, to_ms

LAG = timedelta(seconds=10)
_MS = timedelta(milliseconds=1)
_NONE = timedelta(0)


@dataclass(frozen=True)
class Due:
    """An instant to take. Not `sent`: the beat passes over it. `missed`: how many instants before it, or up to it where
    it is not sent, nobody sends.
    """

    instant: datetime
    sent: bool = True
    missed: int = 0


class Plan:
    """An entry as this beat works on it. `unsent`: the tick that it took and has not done; `sent`: its last tick."""

    def __init__(self, entry: Entry, other: str = "") -> None:
        self.entry = entry
        self.other = other  # the schedule that an operator gave it, '' = its own
        self.schedule = entry.planned(other)
        self.hash = entry.hash(entry.planned() if other else self.schedule)
        self.unsent: datetime | None = None
        self.sent: datetime | None = None
        self.rest_until = 0.0
        self.draft: JobRequest | None = None
        self.count_from(EPOCH)

    def change(self, other: str) -> Plan:
        """The same entry with another schedule."""
        plan = Plan(self.entry, other)
        plan.unsent, plan.sent = self.unsent, self.sent
        plan.count_from(self.last)
        return plan

    @property
    def about(self) -> str:
        return self.entry.about(self.entry.planned() if self.other else self.schedule)

    def count_from(self, last: datetime) -> None:
        self.last, self.next = last, self.schedule.next(last)
        self.at = None if self.next is None else self.fires(self.next)

    def fires(self, instant: datetime) -> datetime:
        """When the instant is sent: its jitter later."""
        return instant + jitter_of(self.entry.name, instant, self.entry.jitter)

    def due(self, now: datetime, grace: timedelta) -> Due | None:
        if self.unsent:
            return Due(EPOCH)
        if self.at is None or self.at > now:
            return None
        entry = self.entry
        jitter = timedelta(seconds=entry.jitter)
        return due(self.schedule, self.last, now, grace, entry.misfire, entry.catch_up, self.fires, jitter)


def jitter_of(name: str, instant: datetime, most: float) -> timedelta:
    """0 to `most` seconds, the same in all beats."""
    if not most:
        return timedelta(0)
    part = int(hashlib.sha256(f"{name}@{to_ms(instant)}".encode()).hexdigest()[:8], 16) / 2**32
    return timedelta(milliseconds=round(part * most * 1000))


def due(
    schedule: Schedule, last: datetime, now: datetime, grace: timedelta, misfire: str = "once", catch_up: int = 0,
    fires: Callable[[datetime], datetime] = lambda at: at, jitter: timedelta = _NONE,
) -> Due | None:  # fmt: skip
    """`fires`: when an instant is sent, at most `jitter` later."""
    first = schedule.next(last)
    if first is None or fires(first) > now:
        return None
    if now - fires(first) <= LAG:
        return Due(first)
    missed = _Missed(schedule, first, fires)
    if misfire == "skip":
        return missed.before(now - LAG)
    if misfire == "all":
        return missed.one_of_all(now, grace, catch_up)
    latest, count = schedule.next(max(last, now - grace - jitter - _MS)), 0
    if latest is None or fires(latest) > now:
        return Due(min(now - grace, latest - _MS) if latest else now - grace, sent=False)
    while (later := schedule.next(latest)) is not None and fires(later) <= now:
        latest, count = later, count + 1
    return Due(latest, missed=count)


@dataclass(frozen=True)
class _Missed:
    """The instants from the first one on that no beat sent."""

    schedule: Schedule
    first: datetime
    fires: Callable[[datetime], datetime]

    def __iter__(self) -> Iterator[datetime]:
        at: datetime | None = self.first
        while at is not None:
            yield at
            at = self.schedule.next(at)

    def before(self, until: datetime) -> Due:
        """Pass over all that were to be sent before that time."""
        count, last = 1, self.first
        for at in islice(self, 1, None):
            if self.fires(at) >= until:
                break
            count, last = count + 1, at
        return Due(last, sent=False, missed=count)

    def one_of_all(self, now: datetime, grace: timedelta, catch_up: int) -> Due:
        """The first of the instants that are made up for; those before them are passed over."""
        if self.fires(self.first) < now - grace:
            return self.before(now - grace)
        latest: deque[datetime] = deque(maxlen=catch_up + 1)
        latest.extend(takewhile(lambda at: now - self.fires(at) > LAG, self))
        if len(latest) <= catch_up:
            return Due(self.first)
        return self.before(self.fires(latest[0]) + _MS)
