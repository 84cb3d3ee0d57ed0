"""Periodic entries: what one is, when it is due, and the hash by which beats know that they mean the same.

An entry is a keyed job (`key` given: submitted into its lane) or an ordinary task (published). Its schedule is anything
with `next(after)`, an instant strictly after, and a `str` that says all of it: `Quartz`, `Every`, `Crontab`.

Which instant is due, given the last one taken and the time: the first after the last. A beat that lags by up to `LAG`
leaves no gap: it takes one instant after the other. What lies further back was missed while no beat ran: of all that
was missed only the latest is sent, late, and nothing that is older than the grace.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from coordinator.quartz import Quartz
from coordinator.store import Store

Source = Callable[[], tuple[str, Iterable["Entry"]]]  # its version, and the entries, gone through when that is new

LAG = timedelta(seconds=10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

logger = logging.getLogger(__name__)


class Schedule(Protocol):
    def next(self, after: datetime) -> datetime | None: ...


@dataclass(frozen=True)
class Entry:
    """`schedule`: Quartz or its text (UTC), seconds, timedelta, or Celery's `schedule` and `crontab`.

    `options` are Celery's (queue, expires, …); `submit`: further keywords of `Coordinator.submit`, with a key only.
    """

    name: str
    schedule: Any
    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str | Sequence[str] | None = None
    when_busy: str = "queue"
    submit: Mapping[str, Any] = field(default_factory=dict)

    def hash(self, schedule: Schedule) -> str:
        """Of everything that matters. Raises TypeError or ValueError where it has no JSON form."""
        what = (self.task, self.args, self.kwargs, self.options, self.key, self.when_busy, self.submit)
        return _digest(json.dumps((self.name, str(schedule), *what), sort_keys=True, default=_plain))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _plain(value: Any) -> str:
    if isinstance(value, date | UUID | Decimal | timedelta):
        return str(value)
    raise TypeError(f"argument {value!r} has no JSON form")


@dataclass(frozen=True)
class Every:
    """Each so many seconds, counted from the epoch: all beats mean the same instants."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds <= 366 * 86400 or timedelta(seconds=self.seconds) % _MS:
            raise ValueError(f"an interval of {self.seconds} s: write 0.1 s to 366 days, in whole milliseconds")

    def next(self, after: datetime) -> datetime | None:
        step = timedelta(seconds=self.seconds)
        return EPOCH + ((after - EPOCH) // step + 1) * step


class Crontab:
    """Celery's crontab: an instant needs its day of month *and* its day of week, 0 = Sunday."""

    def __init__(
        self,
        minutes: Collection[int],
        hours: Collection[int],
        mdays: Collection[int],
        months: Collection[int],
        wdays: Collection[int],
        tz: tzinfo = UTC,
    ) -> None:
        minute, hour, mday, month = (",".join(map(str, sorted(values))) for values in (minutes, hours, mdays, months))
        self._quartz = Quartz(f"0 {minute} {hour} {mday} {month} ? *", tz)
        self._wdays = frozenset(wdays)

    def __str__(self) -> str:
        return f"crontab {self._quartz!r} {sorted(self._wdays)}"

    def next(self, after: datetime) -> datetime | None:
        at = self._quartz.next(after)
        while at is not None:
            local = at.astimezone(self._quartz.tz)
            if local.isoweekday() % 7 in self._wdays:
                break
            at = self._quartz.next(local.replace(hour=23, minute=59, second=59))
        return at


@dataclass(frozen=True)
class Due:
    """An instant to take; not `sent` when it is only to be passed over. `missed`: others that melted into it."""

    instant: datetime
    sent: bool = True
    missed: int = 0


def due(schedule: Schedule, last: datetime, now: datetime, grace: timedelta) -> Due | None:
    first = schedule.next(last)
    if first is None or first > now:
        return None
    if now - first <= LAG:
        return Due(first)
    latest, count = schedule.next(max(last, now - grace - _MS)), 0
    if latest is None or latest > now:
        return Due(now - grace, sent=False)
    while (later := schedule.next(latest)) is not None and later <= now:
        latest, count = later, count + 1
    return Due(latest, missed=count)


class Plan:
    """An entry as this beat works on it. `unsent`: what it took and has not struck out; `sent`: what it sent last."""

    def __init__(self, entry: Entry, schedule: Schedule) -> None:
        check_name(entry.name)
        self.entry = entry
        self.schedule = schedule
        self.hash = entry.hash(schedule)
        self.unsent: datetime | None = None
        self.sent: datetime | None = None
        self.rest_until = 0.0
        self.count_from(EPOCH)

    def count_from(self, last: datetime) -> None:
        self.last, self.next = last, self.schedule.next(last)

    def due(self, now: datetime, grace: timedelta) -> Due | None:
        if self.unsent:
            return Due(EPOCH)
        return due(self.schedule, self.last, now, grace) if self.next and self.next <= now else None


@dataclass
class Reading:
    """What a source said last: `found`, of which `plans` are the names no earlier source has, `digest` what they are.

    `base` is the digest that this beat stands for in Redis; while the two differ, the source's entries rest.
    """

    name: str
    read: Source
    schedule_of: Callable[[Any], Schedule]
    version: str | None = None
    found: dict[str, Plan] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    digest: str = ""
    base: str = ""
    trouble: str = ""

    def again(self) -> bool:
        """Read the source; True when its version is new. Whatever it raises is said once, and changes nothing."""
        try:
            version, entries = self.read()
            found = {} if version == self.version else self._planned(entries)
        except Exception as error:
            if self.trouble != repr(error):
                logger.exception("schedule source %s cannot be read; its %d entries stay", self.name, len(self.found))
            self.trouble = repr(error)
            return False
        self.trouble = ""
        if version == self.version:
            return False
        for name in found.keys() & self.found.keys():
            found[name].unsent, found[name].sent = self.found[name].unsent, self.found[name].sent
        self.version, self.found = version, found
        return True

    def settle(self, names: set[str]) -> None:
        """Keep what is not in `names`, and add the rest to it."""
        for name in self.found.keys() & names:
            logger.error("schedule entry %r of %s is left out: another source has that name", name, self.name)
        self.plans = {name: plan for name, plan in self.found.items() if name not in names}
        self.digest = _digest(" ".join(sorted(plan.hash for plan in self.plans.values())))
        names.update(self.plans)

    def _planned(self, entries: Iterable[Entry]) -> dict[str, Plan]:
        plans = {}
        for entry in entries:
            try:
                plans[entry.name] = Plan(entry, self.schedule_of(entry.schedule))
            except (AttributeError, TypeError, ValueError) as error:
                logger.error("schedule entry %r is left out: %s", getattr(entry, "name", entry), error)
        return plans


def check_name(name: str) -> None:
    """A name is part of a job's id. Raises ValueError."""
    if not (0 < len(name.encode()) <= 400 and name.isprintable()):
        raise ValueError("a name is 1 to 400 bytes of printable text")


def tick_id(name: str, instant: datetime) -> str:
    """The id of the job or task of one tick: whoever sends it, it is the same."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return f"{name}@{instant.astimezone(UTC).isoformat(timespec=precision).replace('+00:00', 'Z')}"


def to_ms(instant: datetime) -> int:
    return (instant - EPOCH) // _MS


def from_ms(milliseconds: float) -> datetime:
    return EPOCH + milliseconds * _MS


def next_tick(store: Store, name: str) -> datetime | None:
    """When that entry is due next; None when no beat knows it, or it is never due again."""
    found = store.call(lambda: store.client.hget(store.key("tick", name), "next"))
    return from_ms(int(found)) if found and int(found) else None
