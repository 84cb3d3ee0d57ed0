"""Periodic entries: an entry, the instant at which it is due, and the hash by which beats see that they mean the same.

An entry is a keyed job (with a `key`: the beat submits it to that lane) or an ordinary task (the beat publishes it).
Its schedule is any object with `next(after)`, the first instant strictly after, and a `str` that tells all of it:
`Quartz`, `Every`, `Crontab`.

The first instant after the last one taken is due. A beat that lags by up to `LAG` takes one instant after the other and
leaves no gap. Earlier instants were missed while no beat ran. The beat sends only the latest of those, late, and none
that is older than the grace.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

from celery.schedules import BaseSchedule, crontab, schedule

from coordinator.jobs.options import Options
from coordinator.jobs.validation import OwnId
from coordinator.scheduler.quartz import Quartz
from coordinator.store.client import Store
from coordinator.store.times import EPOCH, instant

Source = Callable[[], tuple[str, Iterable["Entry"]]]
"""Gives its version, and its entries, which the beat reads only when the version is new."""

LAG = timedelta(seconds=10)
_MS = timedelta(milliseconds=1)

logger = logging.getLogger(__name__)


class Schedule(Protocol):
    def next(self, after: datetime) -> datetime | None: ...


Given: TypeAlias = Schedule | BaseSchedule | str | float | timedelta
"""As an author writes it: `Quartz` or its text (UTC), seconds, timedelta, Celery's `schedule` or `crontab`."""


@dataclass(frozen=True)
class Entry:
    """`options`: Celery's (queue, expires, …). `submit`: further keywords of `Coordinator.submit`, with a key only."""

    name: str
    schedule: Given
    task: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str | Sequence[str] | None = None
    when_busy: Literal["queue", "skip", "defer"] = "queue"
    submit: Options = field(default_factory=Options)

    def hash(self, schedule: Schedule) -> str:
        """A hash of the whole entry. Raises TypeError or ValueError where a part has no JSON form."""
        what = (self.task, self.args, self.kwargs, self.options, self.key, self.when_busy, self.submit)
        return _digest(json.dumps((self.name, str(schedule), *what), sort_keys=True, default=_plain))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _plain(value: object) -> str:
    if isinstance(value, date | UUID | Decimal | timedelta):
        return str(value)
    raise TypeError(f"argument {value!r} has no JSON form")


@dataclass(frozen=True)
class Every:
    """An interval in seconds, counted from the epoch, so that all beats mean the same instants."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds <= 366 * 86400 or timedelta(seconds=self.seconds) % _MS:
            raise ValueError(f"an interval of {self.seconds} s: give 0.1 s to 366 days, in whole milliseconds")

    def next(self, after: datetime) -> datetime | None:
        step = timedelta(seconds=self.seconds)
        return EPOCH + ((after - EPOCH) // step + 1) * step


class Crontab:
    """Celery's crontab: day of month *and* day of week (0 = Sunday) must fit."""

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


def schedule_of(given: Given) -> Schedule:
    """Raises TypeError, or ValueError (QuartzError), for anything that is no schedule."""
    if isinstance(given, Quartz | Every | Crontab):
        return given
    if isinstance(given, str):
        return Quartz(given)
    if isinstance(given, crontab):
        days = given.day_of_month, given.month_of_year, given.day_of_week
        return Crontab(given.minute, given.hour, *days, tz=given.tz)
    if type(given) is schedule:
        periodic: schedule = given
        given = periodic if periodic.relative else periodic.run_every
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Every(float(given))
    raise TypeError(f"{given!r} is no schedule: give Quartz text, seconds, a timedelta, schedule or crontab")


@dataclass(frozen=True)
class Due:
    """An instant to take. Not `sent`: the beat only passes over it. `missed`: how many earlier ones it stands for."""

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
    """An entry as this beat works on it. `unsent`: the tick that it took and has not done; `sent`: its last tick."""

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
    """A source as this beat last read it.

    `found`: all its entries; `plans`: those whose names no earlier source has; `digest`: a hash of `plans`.
    `base`: the digest for which this beat stands in Redis. While `base` and `digest` differ, the source's entries rest.
    """

    name: str
    read: Source
    schedule_of: Callable[[Given], Schedule]
    version: str | None = None
    found: dict[str, Plan] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    digest: str = ""
    base: str = ""
    trouble: str = ""

    def again(self) -> bool:
        """Read the source; True when its version is new. An error changes nothing, and the beat logs it once."""
        try:
            version, entries = self.read()
            found = {} if version == self.version else self._planned(entries)
        except Exception as error:
            if self.trouble != repr(error):
                logger.exception("cannot read the schedule source %s; its %d entries stay", self.name, len(self.found))
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
        """Plan the entries whose names are not among `names`, and add their names to it."""
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


def tick_id(name: str, at: datetime) -> OwnId:
    """The id of the job or task of one tick, the same in every beat. `submit` refuses it to everybody else."""
    precision = "milliseconds" if at.microsecond else "seconds"
    return OwnId(f"{name}@{at.astimezone(UTC).isoformat(timespec=precision).replace('+00:00', 'Z')}")


def next_tick(store: Store, name: str) -> datetime | None:
    """When the entry is due next; None when no beat knows it, or when it is never due again."""
    found = store.read("HGET", store.key("tick", name), "next")
    return instant(int(found)) if found and int(found) else None
