"""The events of objects: each is new, changed, archived or gone. Numbered in the order of the commits, without a gap.

The transaction that changes objects writes their events. At its end it takes the numbers from a counter of one row,
which it keeps locked until its commit. So whoever reads a number can read all before it. (A sequence of the database
gives out 6 before the transaction with 5 has committed.) A transaction that rolls back gives its numbers back.

An event waits until it is delivered. The sender submits the first one that waits of each pid, as a job with the event's
id: a second submit is a duplicate, and no event of a pid overtakes an earlier one.
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
    """What became of a member's object. `sent`, `delivered`: to the task that TASKS_ON_OBJECT names."""

    number: int
    id: str
    member: str
    pid: str
    kind: Kind
    at: datetime
    sent: datetime | None
    delivered: datetime | None


class EventsForgotten(ValueError):
    """The events behind this number are no longer kept, or were never there."""


def made_by(connection: Connection, member: str, rows: Sequence[Mapping[str, Value]]) -> dict[str, Kind]:
    """What these rows make of their objects, by pid; ask before they are written. One that changes nothing has none."""
    old: dict[str, Mapping[str, Value]] = {}
    for pids in portions([str(row["pid"]) for row in rows]):
        query = select(*(objects.c[name] for name in ("pid", "document", *_FACTS)))
        query = query.where(objects.c.member == member, objects.c.pid.in_(pids), ~is_gone())
        old |= {row["pid"]: dict(row) for row in connection.execute(query).mappings()}
    kinds = {str(row["pid"]): _kind(old.get(str(row["pid"])), row) for row in rows}
    return {pid: kind for pid, kind in kinds.items() if kind}


def _kind(before: Mapping[str, Value] | None, after: Mapping[str, Value]) -> Kind | None:
    if after["archived"] and not (before and before["archived"]):
        return "archived"
    if before is None:
        return "new"
    is_other = any(before[name] != after[name] for name in _FACTS) or not _same_text(before, after)
    return "changed" if is_other else None


def _same_text(before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """True if both documents say the same, however they are written."""
    texts = cast(bytes, before["document"]), cast(bytes, after["document"])
    return texts[0] == texts[1] or safe_xml.same(*texts)


def record(connection: Connection, member: str, kinds: Mapping[str, Kind], now: datetime) -> None:
    """Write the events, as the last statements of the transaction: others wait for the counter."""
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
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, before: datetime, ahead: int) -> list[ObjectEvent]:
        """The first event that waits of each pid, where it was never sent, or last sent `before` then.

        Those that were never sent come while fewer than `ahead` are on their way.
        """
        again = _first().where(events.c.sent < before).order_by(events.c.sent, events.c.number).limit(AT_ONCE)
        sent = select(func.count()).where(events.c.sent.is_not(None), events.c.delivered.is_(None))
        new = _first().where(events.c.sent.is_(None)).order_by(events.c.number)
        with self._engine.connect() as connection:
            room = max(0, ahead - connection.execute(sent).scalar_one())
            queries = (again, new.limit(min(AT_ONCE, room)))
            return [event for query in queries for event in _read(connection, query)]

    def sent(self, numbers: Sequence[int], now: datetime) -> None:
        with self._engine.begin() as connection:
            for portion in portions(numbers):
                connection.execute(update(events).where(events.c.number.in_(portion)).values(sent=now))

    def delivered(self, number: int, event_id: str, now: datetime) -> bool:
        """Note it, also a second time. True where another event of the pid waits.

        The id tells the event from one that got its number after a restored backup.
        """
        this = (events.c.number == number) & (events.c.id == event_id)
        pid = select(events.c.pid).where(this).scalar_subquery()
        with self._engine.begin() as connection:
            connection.execute(update(events).where(this, events.c.delivered.is_(None)).values(delivered=now))
            waits = exists().where(events.c.pid == pid, events.c.delivered.is_(None))
            return bool(connection.execute(select(waits)).scalar())

    def waiting(self) -> tuple[int, datetime | None]:
        """How many wait, and since when the first does."""
        query = select(func.count(), func.min(events.c.at)).where(events.c.delivered.is_(None))
        with self._engine.connect() as connection:
            count, since = connection.execute(query).one()
        return count, since

    def last(self) -> int:
        """The greatest number that was given; 0 where none was."""
        with self._engine.connect() as connection:
            last: int = connection.execute(select(event_counter.c.last)).scalar_one()
        return last

    def after(self, number: int | None, most: int = AT_ONCE) -> list[ObjectEvent]:
        """The events behind this number, in their order; None: from the first that is kept.

        Raises EventsForgotten where some behind it are not kept, or where the number was not given yet.
        """
        query = select(events).order_by(events.c.number).limit(most)
        with self._engine.connect() as connection:
            last = connection.execute(select(event_counter.c.last)).scalar_one()  # before those that come meanwhile
            behind = _read(connection, query.where(events.c.number > (number or 0)))
        if number is not None and number != last and (not behind or behind[0].number != number + 1):
            why = f"the events behind {number} are not all kept."
            if number > last:
                why = f"there is no event {number} yet; was a backup of the catalog put back?"
            raise EventsForgotten(f"{why} Begin with the catalog, and go on behind event {last}")
        return behind

    def forget(self, before: datetime, *, undelivered: bool) -> int:
        """Delete the events up to the first that is younger or, unless `undelivered`, that waits. Returns how many."""
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
    """The first event that waits of each pid."""
    earlier = events.alias()
    waits = exists().where(
        earlier.c.pid == events.c.pid, earlier.c.delivered.is_(None), earlier.c.number < events.c.number
    )
    return select(events).where(events.c.delivered.is_(None), ~waits)
