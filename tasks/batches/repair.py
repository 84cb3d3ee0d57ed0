"""Repairs: operators remove or append events of an item. The history keeps removed events, with the reason.

A repair locks the item's row, and checks under that lock that no component works on the item. A component's job that
begins at the same time waits for the lock, and then reads the repaired item. A job that began before the repair can
store no event, even if its process was taken for dead and still runs.
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
"""Maps each type of events that a component makes to the types of events that this component depends on."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Repairs the events of items. `by`, `why`: the operator and the reason.

    `at_work`: returns a sentence about the component that works on an item now, or None. `trail`: writes a repair into
    the audit trail, while the item is locked and before the commit. So each stored repair is in the audit trail, and
    perhaps one that was rolled back when its process was killed.
    """

    items: Items
    comes_from: ComesFrom
    at_work: Callable[[str], str | None]
    by: str
    why: str = ""
    trail: notes.Trail = notes.no_trail

    def restart(self, item: str, kind: str | None = None, *, dry_run: bool = False) -> list[ItemEvent]:
        """Remove the first failed event of an item (with `kind`: the events of that type), and all that depend on it.

        Components then process the item again. Returns the removed events. A repeated call by the same operator, for
        the same reason, returns the same events. `dry_run`: remove nothing. Raises UnknownItem, and ItemConflict if the
        item is stopped, has no such event, or a component works on it.
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
        """Remove an item's events of the type `kind`, and no others. Returns the removed events.

        A repeated call by the same operator, for the same reason, returns the same events. Raises UnknownItem, and
        ItemConflict if the item has no such event, or a component works on the item.
        """
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
        """Return the events that this operator removed last from the item, if for the same reason, else [].

        They are the result of a command that is repeated. `kind`: a type that must be among them; None: any.
        """
        gone = [event for event in events_of(connection, item, history=True) if event.removed]
        last = max((str(event.removed) for event in gone), default="")
        same = (last, self.by, self.why)
        hit = [event for event in gone if (str(event.removed), event.removed_by, event.removed_why) == same]
        return hit if kind is None or kind in [event.type for event in hit] else []

    def add(self, item: str, kind: str, *, success: bool = True) -> None:
        """Append an event of the type `kind` to an item, unless the item's last event is the same.

        The same means: equal type, outcome, operator, reason and revision of the item. Raises UnknownItem, ItemConflict
        if a component works on the item, and ValueError for an invalid type.
        """
        checked_name("event", kind)
        with self.items.engine.begin() as connection:
            lock(connection, item)
            revision = connection.execute(select(rows.c.revision).where(rows.c.item == item)).scalar()
            new = (kind, success, f"{notes.OPERATOR}-{self.by}", self.why, revision)
            last = events_of(connection, item)[-1:]
            if [(past.type, past.success, past.agent, past.report.text, past.revision) for past in last] == [new]:
                return
            self._refuse_at_work(item)
            self._note(connection, "append", item, kind, success)

    def stop(self, item: str) -> bool:
        """Stop an item, so that no component begins work on it; a running job goes on.

        Returns False if the item was stopped already. Raises UnknownItem.
        """
        with self.items.engine.begin() as connection:
            lock(connection, item)
            if STOPPED in newest(events_of(connection, item)):
                return False
            self._note(connection, "stop", item, STOPPED, True)
        return True

    def failures(self, item: str) -> list[ItemEvent]:
        """Return an item's failed events that components made and that are the newest of their type, the oldest first.

        `restart` begins with the first of them.
        """
        return self._failures(self.items.events(item))

    def _failures(self, events: list[ItemEvent]) -> list[ItemEvent]:
        counts = newest(events)
        return [
            event
            for event in events
            if event is counts[event.type] and not event.success and event.type in self.comes_from
        ]

    def _first(self, item: str, events: list[ItemEvent], kind: str | None) -> str:
        """Return the type of the events that a restart removes first. `kind`: the requested type, or None.

        Raises ItemConflict if the item cannot be restarted so.
        """
        latest = newest(events)
        if STOPPED in latest:
            raise ItemConflict(f"{item} is stopped; to end that: {REMOVE} {item} {STOPPED} --why TEXT")
        if kind is None:
            failed = self._failures(events)
            if not failed:
                raise ItemConflict(f"{item} has no failure of a component")
            return failed[0].type
        if kind not in latest:
            raise ItemConflict(f"{item} has no event {kind}")
        if kind not in self.comes_from:
            raise ItemConflict(f"no component makes {kind}; to remove the event: {REMOVE} {item} {kind} --why TEXT")
        return kind

    def _dependent(self, kind: str) -> set[str]:
        """Return `kind` and all types of events that depend on it, directly or through others."""
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
            raise ItemConflict(f"{item}: {working}; repeat the command when that has ended")

    def _note(self, connection: Connection, verb: str, item: str, kind: str, success: bool) -> None:
        before = newest(events_of(connection, item)).get(kind)
        self.trail(verb, item, _version(connection, item), _outcome(before), "succeeded" if success else "failed")
        notes.note(connection, item, kind, success, by=self.by, attempt=uuid.uuid4().hex, text=self.why)
        profiles.count(connection, [item])


def _version(connection: Connection, item: str) -> str:
    """Return a text that differs after each repair: how many events the item ever had, and how many are removed."""
    history = events_of(connection, item, history=True)
    return f"{len(history)}-{sum(event.removed is not None for event in history)}"


def _outcome(event: ItemEvent | None) -> str:
    return "" if event is None else "succeeded" if event.success else "failed"
