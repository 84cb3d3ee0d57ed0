"""An operator repairs the events of an item. The history keeps what a repair removes, with its reason.

A repair has the item alone, and asks under that lock whether somebody works on it. A child that begins at the same
time waits for the lock, and then sees the repaired item. Work from before the repair stores nothing any more, even
where its process lives on and nobody knows.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from tasks.batches import notes, profiles
from tasks.batches.items import Items, events_of, lock, newest
from tasks.batches.values import STOPPED, Conflict, Event, checked_name
from tasks.member_node import instants

ComesFrom = Mapping[str, frozenset[str]]
"""For each type of event that a component makes: the types that it needs."""


@dataclass(frozen=True, slots=True)
class Repair:
    """`at_work`: who works on an item now, as people read it; None: nobody. `by`: the operator."""

    items: Items
    comes_from: ComesFrom
    at_work: Callable[[str], str | None]
    by: str
    why: str = ""

    def restart(self, item: str, kind: str | None = None, *, dry_run: bool = False) -> list[Event]:
        """Take out the first failure, or `kind`, and all that came from there, so that components do it again.

        Returns these events. `dry_run`: change nothing. Raises Conflict, UnknownItem.
        """
        with self.items.engine.begin() as connection:
            lock(connection, item)
            found = events_of(connection, item)
            kinds = self._all_from(self._first(item, found, kind))
            if not dry_run:
                self._remove(connection, item, kinds)
        return [one for one in found if one.type in kinds]

    def remove(self, item: str, kind: str) -> list[Event]:
        """Take out the events of one type. Raises Conflict, UnknownItem."""
        with self.items.engine.begin() as connection:
            lock(connection, item)
            found = [one for one in events_of(connection, item) if one.type == kind]
            if not found:
                raise Conflict(f"{item} has no event {kind}")
            self._remove(connection, item, {kind})
        return found

    def add(self, item: str, kind: str, *, success: bool = True) -> None:
        """Append an event by hand. Raises Conflict, UnknownItem, ValueError."""
        checked_name("event", kind)
        with self.items.engine.begin() as connection:
            lock(connection, item)
            self._refuse_at_work(item)
            self._note(connection, item, kind, success)

    def stop(self, item: str) -> bool:
        """No component begins work on the item any more; a job that runs goes on. False: it was stopped before."""
        with self.items.engine.begin() as connection:
            lock(connection, item)
            if STOPPED in newest(events_of(connection, item)):
                return False
            self._note(connection, item, STOPPED, True)
        return True

    def failures(self, item: str) -> list[Event]:
        """Those that count, and that a component makes, as they came: `restart` begins with the first."""
        return self._failures(self.items.events(item))

    def _failures(self, found: list[Event]) -> list[Event]:
        counts = newest(found)
        return [one for one in found if one is counts[one.type] and not one.success and one.type in self.comes_from]

    def _first(self, item: str, events: list[Event], kind: str | None) -> str:
        """The type with which a restart begins."""
        found = newest(events)
        if STOPPED in found:
            raise Conflict(f"{item} is stopped; to let it go on: coordinator items remove {item} {STOPPED}")
        if kind is None:
            failed = self._failures(events)
            if not failed:
                raise Conflict(f"{item}: nothing failed that a component makes")
            return failed[0].type
        if kind not in found:
            raise Conflict(f"{item} has no event {kind}")
        if kind not in self.comes_from:
            raise Conflict(f"no component makes {kind}; to take it out: coordinator items remove {item} {kind}")
        return kind

    def _all_from(self, kind: str) -> set[str]:
        """This type, and all that come from it."""
        found, more = {kind}, {kind}
        while more:
            more = {kind for kind, needs in self.comes_from.items() if needs & more} - found
            found |= more
        return found

    def _remove(self, connection: Connection, item: str, kinds: set[str]) -> None:
        self._refuse_at_work(item)
        notes.remove(connection, item, kinds, by=self.by, why=self.why, now=instants.now())
        profiles.count(connection, [item])

    def _refuse_at_work(self, item: str) -> None:
        if found := self.at_work(item):
            raise Conflict(f"{item}: {found}; ask again when that is over")

    def _note(self, connection: Connection, item: str, kind: str, success: bool) -> None:
        notes.note(connection, item, kind, success, by=self.by, attempt=uuid.uuid4().hex, text=self.why)
        profiles.count(connection, [item])
