"""The events that an object is new, changed, archived or gone, numbered without gaps in the order of their commits.

The transaction that changes objects writes their events. Just before its commit it takes the numbers from a counter,
whose row stays locked until the commit. So once an event can be read, all events with smaller numbers can be read, too.
(A sequence of the database would give out 6 before the transaction with 5 has committed.) A transaction that is rolled
back leaves the counter as it was.

An event waits until it is delivered to the task that TASKS_ON_OBJECT names. The first waiting event of each pid is
submitted as a job whose id is the event's id. So a second submit of an event is a duplicate, and no event of a pid
overtakes an earlier one.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, cast

from sqlalchemy import Connection, Engine, Select, delete, exists, false, func, or_, select, update

from tasks.catalog.schema import event_counter, events, is_gone, objects
from tasks.database import Value, portions
from tasks.member_node import safe_xml

Kind = Literal["new", "changed", "archived", "gone"]

AT_ONCE = 1000
_FACTS = (
    "modified", "format_id", "size", "checksum", "algorithm", "serial_version", "archived", "obsoletes", "obsoleted_by",
)  # fmt: skip


class ObjectEvent(NamedTuple):
    """The event that a member's object has changed. `number`: the event's place in the order of all events.

    `at`: when the change was stored. `sent`, `delivered`: when a job for the event was last submitted to the task that
    TASKS_ON_OBJECT names, and when the job had run; None: not yet.
    """

    number: int
    id: str
    member: str
    pid: str
    kind: Kind
    at: datetime
    sent: datetime | None
    delivered: datetime | None


class EventsForgotten(ValueError):
    """Refuses to read the events after a number: some of them have been deleted, or no event has the number yet."""


def event_kinds(connection: Connection, member: str, rows: Sequence[Mapping[str, Value]]) -> dict[str, Kind]:
    """Compare rows, before they are written to the table of objects, with the stored ones.

    Returns the kind of event by pid. A row that changes nothing is left out.
    """
    old: dict[str, Mapping[str, Value]] = {}
    for pids in portions([str(row["pid"]) for row in rows]):
        query = select(*(objects.c[name] for name in ("pid", "document", *_FACTS)))
        query = query.where(objects.c.member == member, objects.c.pid.in_(pids), ~is_gone())
        old |= {row["pid"]: dict(row) for row in connection.execute(query).mappings()}
    kinds = {str(row["pid"]): _kind(old.get(str(row["pid"])), row) for row in rows}
    return {pid: kind for pid, kind in kinds.items() if kind}


def _kind(before: Mapping[str, Value] | None, after: Mapping[str, Value]) -> Kind | None:
    """Return the kind of event for an object's stored row and its new one. `before`: None if nothing is stored."""
    if after["archived"] and not (before and before["archived"]):
        return "archived"
    if before is None:
        return "new"
    is_other = any(before[name] != after[name] for name in _FACTS) or not _same_text(before, after)
    return "changed" if is_other else None


def _same_text(before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """True if the documents of both rows of an object are the same XML."""
    texts = cast(bytes, before["document"]), cast(bytes, after["document"])
    return texts[0] == texts[1] or safe_xml.same(*texts)


def record(connection: Connection, member: str, kinds: Mapping[str, Kind], now: datetime) -> None:
    """Write an event for each pid in `kinds`, last in the transaction, since other writers wait for the counter row."""
    if not kinds:
        return
    connection.execute(update(event_counter).values(last=event_counter.c.last + len(kinds)))
    first = connection.execute(select(event_counter.c.last)).scalar_one() - len(kinds) + 1
    rows = [
        {"number": first + place, "id": str(uuid.uuid4()), "member": member, "pid": pid, "kind": kind, "at": now}
        for place, (pid, kind) in enumerate(kinds.items())
    ]
    connection.execute(events.insert(), rows)


class ObjectEvents:
    """Reads and changes the events in the catalog's database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, before: datetime, ahead: int) -> list[ObjectEvent]:
        """Return the events to submit now: of each pid the first waiting event, if it was never sent, or last `before`.

        Returns as many never sent ones as keep the number of events that are sent and not delivered up to `ahead`.
        """
        again = _first().where(events.c.sent < before).order_by(events.c.sent, events.c.number).limit(AT_ONCE)
        sent = select(func.count()).where(events.c.sent.is_not(None), events.c.delivered.is_(None))
        new = _first().where(events.c.sent.is_(None)).order_by(events.c.number)
        with self._engine.connect() as connection:
            room = max(0, ahead - connection.execute(sent).scalar_one())
            queries = (again, new.limit(min(AT_ONCE, room)))
            return [event for query in queries for event in _read(connection, query)]

    def sent(self, numbers: Sequence[int], now: datetime) -> None:
        """Store that the events with these numbers were submitted at `now`."""
        with self._engine.begin() as connection:
            for portion in portions(numbers):
                connection.execute(update(events).where(events.c.number.in_(portion)).values(sent=now))

    def delivered(self, number: int, event_id: str, now: datetime) -> bool:
        """Store that an event was delivered; a second call changes nothing. `number`, `event_id`: the event.

        The id tells the event from another with the same number, as after a restored backup. Returns True if another
        event of the same pid waits.
        """
        this = (events.c.number == number) & (events.c.id == event_id)
        pid = select(events.c.pid).where(this).scalar_subquery()
        with self._engine.begin() as connection:
            connection.execute(update(events).where(this, events.c.delivered.is_(None)).values(delivered=now))
            waits = exists().where(events.c.pid == pid, events.c.delivered.is_(None))
            return bool(connection.execute(select(waits)).scalar())

    def waiting(self) -> tuple[int, datetime | None]:
        """Return the number of undelivered events, and when the oldest of them was stored (None: there are none)."""
        query = select(func.count(), func.min(events.c.at)).where(events.c.delivered.is_(None))
        with self._engine.connect() as connection:
            count, since = connection.execute(query).one()
        return count, since

    def last(self) -> int:
        """Return the number of the newest event; 0 before the first event."""
        with self._engine.connect() as connection:
            last: int = connection.execute(select(event_counter.c.last)).scalar_one()
        return last

    def after(self, number: int | None, most: int = AT_ONCE) -> list[ObjectEvent]:
        """Return at most `most` events with greater numbers than `number`, in order; None: from the oldest stored one.

        Raises EventsForgotten if some of these were deleted, or if no event has the number yet.
        """
        query = select(events).order_by(events.c.number).limit(most)
        with self._engine.connect() as connection:
            last = connection.execute(
                select(event_counter.c.last)
            ).scalar_one()  # read before the events, so that it is no greater than the last of them
            behind = _read(connection, query.where(events.c.number > (number or 0)))
        if number is not None and number != last and (not behind or behind[0].number != number + 1):
            why = f"some events after {number} are no longer kept."
            if number > last:
                why = f"there is no event {number} yet; was a backup of the catalog restored?"
            raise EventsForgotten(f"{why} Read the whole catalog, and then the events after {last}")
        return behind

    def forget(self, before: datetime, *, undelivered: bool) -> int:
        """Delete the oldest events, up to the first that was stored at `before` or later. Returns how many it deleted.

        Without `undelivered`, the first event that was not delivered stays, with all later ones.
        """
        kept = or_(events.c.at >= before, false() if undelivered else events.c.delivered.is_(None))
        with self._engine.connect() as connection:
            query = select(events.c.number).order_by(events.c.number).limit(1)
            first = connection.execute(query).scalar()
            end = connection.execute(query.where(kept)).scalar() or self.last() + 1
        numbers = range(first or end, end)
        for portion in portions(numbers):
            with self._engine.begin() as connection:
                connection.execute(delete(events).where(events.c.number.in_(portion)))
        return len(numbers)


def _read(connection: Connection, query: Select[tuple[Value, ...]]) -> list[ObjectEvent]:
    return [ObjectEvent(*(getattr(row, name) for name in ObjectEvent._fields)) for row in connection.execute(query)]


def _first() -> Select[tuple[Value, ...]]:
    """Build a query for the undelivered event with the smallest number of each pid."""
    earlier = events.alias()
    waits = exists().where(
        earlier.c.pid == events.c.pid, earlier.c.delivered.is_(None), earlier.c.number < events.c.number
    )
    return select(events).where(events.c.delivered.is_(None), ~waits)
