"""Reads the tables of django-celery-beat, and writes back what became of their entries.

Redis knows what beats sent: the history of an entry has a line for each tick. The row knows what of that is counted:
`last_run_at` is the instant of the last counted tick. An update adds the ticks behind it and moves it on, in one
statement that changes nothing where another beat was faster. So a tick is counted once, by whichever beat comes first,
also where the beat that sent it was killed; and an old version of the row, written by a form of the admin, is counted
up again.

A row that ran its once is disabled, with `total_run_count` 0, as django-celery-beat leaves it: so enabled again, it
runs again. Where its instant has passed unsent (the row was enabled without being saved, or a clock is wrong), and can
be sent no more, it is armed anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings
from django.db import router
from django.db.models import F, QuerySet
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks

from coordinator.core.store.times import EPOCH, instant
from coordinator.django.periodic_tasks import Row, aware, entry_of, read_rows
from coordinator.scheduler import history

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator
    from coordinator.scheduler.entry import Entry
    from coordinator.scheduler.history import EntryEvent

_PAGE = 200  # entries that are looked at in one round trip
_LINES = 20  # lines of a history that are read, unless more of them are new
_NOT_SENT = ("failed", "missed", "omitted")

logger = logging.getLogger(__name__)


class Tick(NamedTuple):
    """What Redis knows about an entry. `last`: the last instant that any beat took; `unsent`: it is not sent yet.
    `events`: its ticks, the latest last; `cut`: Redis may have earlier ones.
    """

    last: datetime
    unsent: bool
    paused: bool
    events: list[EntryEvent]
    cut: bool


class Columns(NamedTuple):
    """What beats write into a row, as it is now."""

    pk: int
    name: str
    last_run_at: datetime | None
    total_run_count: int
    date_changed: datetime


class Runs:
    """The rows that this beat has read, and their entries. `_settled`: entry -> the last instant of which there is
    nothing more to write.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._store = coordinator.store
        self._rows: list[Row] | None = None
        self._entries: dict[str, tuple[Row, Entry]] = {}
        self._settled: dict[str, datetime] = {}
        self._changed = False  # True: rows are enabled or armed otherwise, and no beat is told so yet

    @property
    def _tasks(self) -> QuerySet[PeriodicTask]:
        return PeriodicTask.objects.using(_database())

    def sign(self) -> object:
        """Return what changes with each change of a row that django-celery-beat saw."""
        return PeriodicTasks.objects.using(_database()).filter(ident=1).values_list("last_update", flat=True).first()

    def read(self) -> list[Entry] | None:
        """Read the rows. Returns their entries; None if nothing has changed."""
        rows = read_rows(self._tasks)
        if rows == self._rows:
            return None
        self._entries = {row.name: self._known(row) or (row, entry_of(row, self._zone(), self._check)) for row in rows}
        self._settled = {name: at for name, at in self._settled.items() if name in self._entries}
        self._rows = rows
        return [entry for _, entry in self._entries.values()]

    def _known(self, row: Row) -> tuple[Row, Entry] | None:
        """Return the entry that was made of the same row before."""
        known = self._entries.get(row.name)
        return known if known and known[0] == row else None

    def _zone(self) -> tzinfo | None:
        """The zone of all crontabs, where django-celery-beat is told not to use their own."""
        own = getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True)
        return None if own else self._coordinator._bound.timezone

    def _check(self, entry: Entry) -> None:
        entry.check_job(self._coordinator._requests, if_unknown="wait")

    def write(self, lasts: Mapping[str, datetime]) -> None:
        """Count the ticks that were sent, and disable rows that are over. `lasts`: as this beat knows them."""
        new = [name for name, last in lasts.items() if name in self._entries and not self._is_settled(name, last)]
        for start in range(0, len(new), _PAGE):
            ticks = self.ticks(new[start : start + _PAGE])
            for columns in self.columns(list(ticks)):
                self._changed |= self._settle(columns, ticks[columns.name])
        self._changed |= self._disable_expired()
        if self._changed:
            PeriodicTasks.update_changed()
            self._changed = False

    def _is_settled(self, name: str, last: datetime) -> bool:
        return (settled := self._settled.get(name)) is not None and last <= settled

    def columns(self, names: list[str]) -> list[Columns]:
        found = self._tasks.filter(enabled=True, name__in=names).values_list(*Columns._fields)
        return [Columns(*values) for values in found]

    def ticks(self, names: list[str]) -> dict[str, Tick]:
        key = self._store.key
        # The history after the tick: an instant that is taken and not unsent has its line by then.
        replies = self._store.read_many(
            [
                *(("HMGET", key("tick", name), "last", "unsent", "paused") for name in names),
                *(("LRANGE", key("ticks", name), str(-_LINES), "-1") for name in names),
            ]
        )
        ticks = {}
        for name, (last, unsent, paused), lines in zip(names, replies, replies[len(names) :], strict=False):
            if last is not None:
                cut = len(lines) == _LINES
                found = self._events(name, lines)
                ticks[name] = Tick(instant(int(last)), unsent is not None, paused is not None, found, cut)
        return ticks

    def _events(self, name: str, lines: list[bytes]) -> list[EntryEvent]:
        return [event for event in history.read(name, lines) if event.kind == "tick"]

    def _settle(self, columns: Columns, tick: Tick) -> bool:
        """Write what is new of an entry into its row. Returns True if the row is enabled or armed otherwise now."""
        counted = self.count(columns, tick)
        row, entry = self._entries[columns.name]
        over = row.once and entry.first is not None and tick.last >= entry.first and not tick.unsent
        if over and tick.paused:
            return False
        ended = over and self._end(columns, row, any(event.at == entry.first for event in tick.events))
        if counted and not tick.unsent:  # only now: what the database refused is written at the next look
            self._settled[columns.name] = tick.last
        return ended

    def count(self, columns: Columns, tick: Tick) -> bool:
        """Count what the row has not. Returns False if the row has changed meanwhile."""
        former = self._former(columns)
        events = tick.events
        if tick.cut and all(event.at > former for event in events):
            key = self._store.key("ticks", columns.name)
            events = self._events(columns.name, self._store.read("LRANGE", key, 0, -1))
        sent = [event.at for event in events if event.at > former and event.word not in _NOT_SENT]
        counted = F("total_run_count") + len(sent)
        same = self._tasks.filter(pk=columns.pk, last_run_at=columns.last_run_at)
        return not sent or bool(same.update(last_run_at=_column(max(sent)), total_run_count=counted))

    def _former(self, columns: Columns) -> datetime:
        """Return the last instant that the row counts already. A form of the admin that disables a row takes that out
        of it.
        """
        if columns.last_run_at is not None:
            return aware(columns.last_run_at)
        changed = aware(columns.date_changed)
        return max(changed, self._settled.get(columns.name, changed))

    def _end(self, columns: Columns, row: Row, had: bool) -> bool:
        """Disable a row whose once is over; or arm it anew, if its instant was not sent and cannot be any more. `had`:
        its instant has a line in the history. Returns True if another beat did not do so before.
        """
        same = self._tasks.filter(pk=row.pk, enabled=True, date_changed=row.date_changed)
        now = _column(self._now())
        if had or columns.total_run_count:
            news, new = "its once is over, and it is disabled", {"enabled": False, "total_run_count": 0}
        else:
            news, new = "its once has passed unsent, and is due anew", {}
        changed = same.update(**new, date_changed=now)
        if changed:
            logger.info("periodic task %r: %s", row.name, news)
        return bool(changed)

    def _disable_expired(self) -> bool:
        rows = [row for row in self._rows or () if row.expires]
        now = self._now() if rows else EPOCH
        over = [row.pk for row in rows if row.is_over(now)]
        expired = self._tasks.filter(pk__in=over, enabled=True, expires__lte=_column(now))
        return bool(over and expired.update(enabled=False))

    def _now(self) -> datetime:
        return instant(self._store.clock().wall)


def _database() -> str:
    return str(router.db_for_write(PeriodicTask))  # never a replica, which lags


def _column(at: datetime) -> datetime:
    """Return the value of a column for an instant."""
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())
