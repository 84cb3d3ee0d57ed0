"""An operator repairs the events of an item. The history keeps what a repair removes, with its reason.

A repair locks the item, and checks under that lock that no component works on it. A child that begins at the same
time waits for the lock, and then sees the repaired item. Work from before the repair stores nothing any more, also
where its process is believed dead and lives on.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from tasks import instants
from tasks.batches import notes, profiles
from tasks.batches.items import Items, events_of, lock, newest
from tasks.batches.schema import items as rows
from tasks.batches.values import STOPPED, ItemConflict, ItemEvent, checked_name

REMOVE = "coordinator items remove"

ComesFrom = Mapping[str, frozenset[str]]
"""For each type of event that a component makes: the types that it needs."""


@dataclass(frozen=True, slots=True)
class Repair:
    """`at_work`: a sentence about the component that works on an item now, or None. `by`: the operator.

    `trail` notes each repair before it is stored, while the item is locked. So a repair that a kill undoes may have a
    line, and one that is done has one.
    """

    items: Items
    comes_from: ComesFrom
    at_work: Callable[[str], str | None]
    by: str
    why: str = ""
    trail: notes.Trail = notes.no_trail

    def restart(self, item: str, kind: str | None = None, *, dry_run: bool = False) -> list[ItemEvent]:
        """Remove the first failure, or the events of `kind`, and all events that depend on them: components work again.

        Returns the removed events, also where this author has removed them for this reason before. `dry_run`: remove
        nothing. Raises ItemConflict, UnknownItem.
        """
        with self.items.engine.begin() as connection:
            lock(connection, item)
            events = events_of(connection, item)
            try:
                kinds = self._dependent(self._first(item, events, kind))
            except ItemConflict:
                if removed := self._removed(connection, item, kind):
                    return removed
                raise
            hit = [event for event in events if event.type in kinds]
            if not dry_run:
                self._remove(connection, "restart", item, hit)
        return hit

    def remove(self, item: str, kind: str) -> list[ItemEvent]:
        """Remove the events of one type; see `restart`. Raises ItemConflict, UnknownItem."""
        with self.items.engine.begin() as connection:
            lock(connection, item)
            events = [event for event in events_of(connection, item) if event.type == kind]
            if not events and not (removed := self._removed(connection, item, kind)):
                raise ItemConflict(f"{item} has no event {kind}")
            if not events:
                return removed
            self._remove(connection, "remove", item, events)
        return events

    def _removed(self, connection: Connection, item: str, kind: str | None) -> list[ItemEvent]:
        """What this author removed last, for this reason: the act is given again."""
        gone = [event for event in events_of(connection, item, history=True) if event.removed]
        last = max((str(event.removed) for event in gone), default="")
        asked = (last, self.by, self.why)
        hit = [event for event in gone if (str(event.removed), event.removed_by, event.removed_why) == asked]
        return hit if kind is None or kind in [event.type for event in hit] else []

    def add(self, item: str, kind: str, *, success: bool = True) -> None:
        """Append an event by hand, unless this author did so before and nothing came since.

        Raises ItemConflict, UnknownItem, ValueError.
        """
        checked_name("event", kind)
        with self.items.engine.begin() as connection:
            lock(connection, item)
            revision = connection.execute(select(rows.c.revision).where(rows.c.item == item)).scalar()
            asked = (kind, success, f"{notes.OPERATOR}-{self.by}", self.why, revision)
            last = events_of(connection, item)[-1:]
            if [(past.type, past.success, past.agent, past.report.text, past.revision) for past in last] == [asked]:
                return
            self._refuse_at_work(item)
            self._note(connection, "append", item, kind, success)

    def stop(self, item: str) -> bool:
        """No component begins work on the item any more; a job that runs goes on. False: it was stopped before."""
        with self.items.engine.begin() as connection:
            lock(connection, item)
            if STOPPED in newest(events_of(connection, item)):
                return False
            self._note(connection, "stop", item, STOPPED, True)
        return True

    def failures(self, item: str) -> list[ItemEvent]:
        """The failures that count and that a component made, the oldest first: `restart` begins with the first."""
        return self._failures(self.items.events(item))

    def _failures(self, events: list[ItemEvent]) -> list[ItemEvent]:
        counts = newest(events)
        return [
            event
            for event in events
            if event is counts[event.type] and not event.success and event.type in self.comes_from
        ]

    def _first(self, item: str, events: list[ItemEvent], kind: str | None) -> str:
        """The type with which a restart begins."""
        latest = newest(events)
        if STOPPED in latest:
            raise ItemConflict(f"{item} is stopped; to let it go on: {REMOVE} {item} {STOPPED} --why TEXT")
        if kind is None:
            failed = self._failures(events)
            if not failed:
                raise ItemConflict(f"{item}: nothing failed that a component makes")
            return failed[0].type
        if kind not in latest:
            raise ItemConflict(f"{item} has no event {kind}")
        if kind not in self.comes_from:
            raise ItemConflict(f"no component makes {kind}; to take it out: {REMOVE} {item} {kind} --why TEXT")
        return kind

    def _dependent(self, kind: str) -> set[str]:
        """This type, and all types that depend on it."""
        kinds, more = {kind}, {kind}
        while more:
            more = {kind for kind, needs in self.comes_from.items() if needs & more} - kinds
            kinds |= more
        return kinds

    def _remove(self, connection: Connection, verb: str, item: str, events: list[ItemEvent]) -> None:
        self._refuse_at_work(item)
        before = ", ".join(event.type for event in events)
        self.trail(verb, item, _version(connection, item), before, "removed")
        kinds = {event.type for event in events}
        notes.remove(connection, item, kinds, by=self.by, why=self.why, now=instants.now())
        profiles.count(connection, [item])

    def _refuse_at_work(self, item: str) -> None:
        if working := self.at_work(item):
            raise ItemConflict(f"{item}: {working}; ask again when that is over")

    def _note(self, connection: Connection, verb: str, item: str, kind: str, success: bool) -> None:
        before = newest(events_of(connection, item)).get(kind)
        self.trail(verb, item, _version(connection, item), _outcome(before), "succeeded" if success else "failed")
        notes.note(connection, item, kind, success, by=self.by, attempt=uuid.uuid4().hex, text=self.why)
        profiles.count(connection, [item])


def _version(connection: Connection, item: str) -> str:
    """How many events the item ever had, and how many of them were removed."""
    history = events_of(connection, item, history=True)
    return f"{len(history)}-{sum(event.removed is not None for event in history)}"


def _outcome(event: ItemEvent | None) -> str:
    return "" if event is None else "succeeded" if event.success else "failed"
