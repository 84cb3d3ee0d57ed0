"""The store of items and their events, in SQL.

For each component, one job at a time works on an item. `begin` stores the fence of that job before the work starts, and
checks that the item still meets the component's conditions. `append` is one insert, which takes effect only while that
fence is the latest. So if two jobs run for the same item, the job with the smaller fence can no longer store an event.
A repair by an operator closes the fences of its item, so work that began before the repair stores no event either.

Component, item and attempt identify an event, so a repeated append stores the event once.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    String,
    and_,
    case,
    literal,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert

from tasks import instants
from tasks.batches import profiles
from tasks.batches.query import COLUMNS, ItemConditions, ItemPage, count, is_wanted, item_of, kinds, page, read_item
from tasks.batches.schema import BATCHES, events, fences, items, orphans
from tasks.batches.values import (
    Item,
    ItemEvent,
    ItemLost,
    NewEvent,
    Report,
    UnknownItem,
    checked_name,
    parts_of,
    rank_of,
)
from tasks.database import Value, insert, open_database
from tasks.settings import Settings

_Values = Mapping[str, Value | ColumnElement[int] | ColumnElement[str]]

_AS_TEXT = ("started", "ended", "removed")


class Items:
    """Reads and writes items and their events in the database of `settings`.

    `may_be_newer`: accept tables that a newer version of the program has migrated. `keeps`: keep a connection open
    between uses. Raises UnusableDatabase.
    """

    def __init__(self, settings: Settings, *, may_be_newer: bool = False, keeps: bool = False) -> None:
        self.engine: Engine = open_database(
            settings.database, settings.host, BATCHES, may_be_newer=may_be_newer, keeps=keeps
        )

    def register(
        self, item: str, *, type: str = "batch", directory: str | None = None, priority: int | None = None
    ) -> bool:
        """Add an item. Returns False, and changes nothing, if the item exists.

        `priority`: from 1 (first) to 9, or None (last). Raises ValueError for an invalid name, type or priority.
        """
        with self.engine.begin() as connection:
            is_new = register(connection, item, type=type, directory=directory, priority=priority)
            if is_new:
                profiles.count(connection, [item])
            return is_new

    def item(self, item: str) -> Item:
        """Read an item. Raises UnknownItem, and ValueError if a value in the item's row is invalid."""
        with self.engine.connect() as connection:
            row = connection.execute(select(*COLUMNS).where(items.c.item == item)).first()
        if row is None:
            raise UnknownItem(item)
        try:
            return read_item(row)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"the item {item} cannot be read: {error}") from error

    def round_trips(self, batch: str) -> list[Item]:
        """Read all round trips of a batch, by number. Raises ValueError if a value in one of the rows is invalid."""
        with self.engine.connect() as connection:
            return round_trips(connection, batch)

    def query(self, wanted: ItemConditions, after: str | None = None, limit: int = 100) -> ItemPage:
        """Read at most `limit` items that meet the conditions `wanted`, by priority, then age.

        `after`: the field `next` of the previous page; None for the first page.
        """
        return page(self.engine, wanted, after, limit)

    def count(self, wanted: ItemConditions) -> int:
        """Return the number of items that meet the conditions `wanted` now."""
        return count(self.engine, wanted)

    def profiles(self, names: Sequence[str]) -> dict[str, profiles.Profile]:
        """Compute the profile of each item in `names`: the item's type, and the newest event of each type of events."""
        with self.engine.connect() as connection:
            return profiles.of_items(connection, names) if names else {}

    def kinds(self) -> set[str]:
        """Return the types of all events that any item has or had."""
        return kinds(self.engine)

    def touch(self, item: str, *, directory: str | None = None) -> Item:
        """Increase the revision of an item that has changed. `directory`: the item's new directory, or None."""
        values: _Values = {"revision": items.c.revision + 1, "modified": instants.now()}
        if directory is not None:
            values = {**values, "directory": directory}
        with self.engine.begin() as connection:
            _change(connection, item, values)
            profiles.count(connection, [item])
        return self.item(item)

    def prioritise(self, item: str, priority: int | None) -> None:
        """Set an item's priority, from 1 (first) to 9; an item with None comes after those with 9.

        The item's revision stays. Raises UnknownItem, and ValueError for an invalid priority.
        """
        with self.engine.begin() as connection:
            _change(connection, item, {"rank": rank_of(priority)})

    def begin(self, component: str, item: str, *, fence: int, wanted: ItemConditions | None = None) -> Item | None:
        """Store `fence`, the fence of the job that begins work on the item for a component, and return the item.

        Returns None if the item no longer meets the conditions `wanted`, or if its row is invalid. Waits until a repair
        in progress has ended. Raises UnknownItem, and ItemLost if a job with a greater fence has begun work on it.
        """
        with self.engine.begin() as connection:
            lock(connection, item)
            _note_fence(connection, component, item, fence)
            row = connection.execute(select(*COLUMNS).where(items.c.item == item)).one()
            if wanted is not None and not is_wanted(connection, item, wanted):
                return None
            return item_of(row)

    def begun(self, component: str, names: Sequence[str], fence: int) -> set[str]:
        """Return the items in `names` on which the component began work with this fence or a later one.

        An item that an operator has repaired since then is left out.
        """
        later = select(fences.c.item).where(
            fences.c.component == component, fences.c.item.in_(names), fences.c.fence >= fence, fences.c.open.is_(True)
        )
        with self.engine.connect() as connection:
            return set(connection.execute(later).scalars())

    def append(self, event: NewEvent) -> str:
        """Store an event, and return its id. If the same attempt has stored an event already, return that event's id.

        Raises ItemLost, and stores nothing, if since `begin` a later job has begun work on the item, or an operator has
        repaired the item.
        """
        new_id = str(uuid.uuid4())
        with self.engine.begin() as connection:
            lock(connection, event.item)
            stored = connection.execute(_append(connection, new_id, event)).first()
            if stored is not None:
                if event.changed:
                    _change(connection, event.item, {"revision": items.c.revision + 1, "modified": instants.now()})
                profiles.count(connection, [event.item])
                return new_id
            known = select(events.c.id).where(
                events.c.component == event.component, events.c.item == event.item, events.c.attempt == event.attempt
            )
            stored_id: str | None = connection.execute(known).scalar()
        if stored_id is None:
            raise ItemLost(event.component, event.item, event.fence)
        return stored_id

    def keep_orphan(self, event: NewEvent) -> None:
        """Store the result of finished work in the table `orphans`, for operators, after `append` raised ItemLost."""
        row = {name: getattr(event, name) for name in orphans.c.keys() if name != "report"}  # noqa: SIM118
        with self.engine.begin() as connection:
            statement = insert(connection, orphans).values(**row, report=event.report.to_json())
            connection.execute(statement.on_conflict_do_nothing())

    def orphans(self, item: str | None = None, limit: int = 100) -> list[dict[str, Value]]:
        """Read the rows that `keep_orphan` stored, the latest first. `item`: only those of this item; None: of all."""
        query = select(orphans).order_by(orphans.c.ended.desc()).limit(limit)
        if item is not None:
            query = query.where(orphans.c.item == item)
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def events(self, item: str, *, history: bool = False) -> list[ItemEvent]:
        """Read the events of an item, the oldest first. `history`: include the events that repairs have removed."""
        with self.engine.connect() as connection:
            return events_of(connection, item, history=history)


def register(
    connection: Connection, item: str, *, type: str, directory: str | None = None, priority: int | None = None
) -> bool:
    """Insert an item, without its profile. Returns False if the item exists. See `Items.register`."""
    batch, number = parts_of(checked_name("item", item))
    now = instants.now()
    row: dict[str, Value] = {"item": item, "batch": batch, "round_trip": number, "type": checked_name("type", type)}
    row |= {"rank": rank_of(priority), "directory": directory, "registered": now, "modified": now, "revision": 1}
    statement = insert(connection, items).values(row).on_conflict_do_nothing()
    return connection.execute(statement.returning(items.c.number)).first() is not None


def lock(connection: Connection, item: str) -> None:
    """Lock the item's row until the transaction ends; must be the first statement of that. Raises UnknownItem."""
    _change(connection, item, {"item": items.c.item})


def _change(connection: Connection, item: str, values: _Values) -> None:
    if not connection.execute(update(items).where(items.c.item == item).values(**values)).rowcount:
        raise UnknownItem(item)


def round_trips(connection: Connection, batch: str) -> list[Item]:
    query = select(*COLUMNS).where(items.c.batch == batch).order_by(items.c.round_trip, items.c.number)
    return [read_item(row) for row in connection.execute(query)]


def events_of(connection: Connection, item: str, *, history: bool = False) -> list[ItemEvent]:
    columns = [
        type_coerce(column, String).label(column.name) if column.name in _AS_TEXT else column for column in events.c
    ]
    query = select(*columns).where(events.c.item == item).order_by(events.c.number)
    if not history:
        query = query.where(events.c.removed.is_(None))
    return [_event(row) for row in connection.execute(query).mappings()]


def newest(history: list[ItemEvent]) -> dict[str, ItemEvent]:
    """Return the newest event of each type. `history`: events, the oldest first; removed ones do not count."""
    return {event.type: event for event in history if event.removed is None}


def _note_fence(connection: Connection, component: str, item: str, fence: int) -> None:
    statement = insert(connection, fences).values(component=component, item=item, fence=fence, open=True)
    later = or_(fences.c.fence < fence, and_(fences.c.fence == fence, fences.c.open.is_(True)))
    statement = statement.on_conflict_do_update(
        index_elements=["component", "item"], set_={"fence": fence, "open": True}, where=later
    )
    connection.execute(statement)
    mine = select(fences.c.fence, fences.c.open).where(fences.c.component == component, fences.c.item == item)
    if tuple(connection.execute(mine).one()) != (fence, True):
        raise ItemLost(component, item, fence)


def _append(connection: Connection, event_id: str, event: NewEvent) -> ReturningInsert[str]:
    """Build the insert of an event. Executed, it inserts no row unless the item's stored fence is the event's fence."""
    current = select(items.c.revision).where(items.c.item == event.item).scalar_subquery()
    outdated = current != event.revision_read  # another process has changed the item since the work began
    revision = case((outdated, event.revision_read), else_=event.revision_read + event.changed)
    values = {name: getattr(event, name) for name in NewEvent.__slots__ if name not in ("changed", "report")}
    columns: dict[str, ColumnElement[str] | ColumnElement[int] | ColumnElement[bool]] = {
        name: literal(value, events.c[name].type) for name, value in values.items()
    }
    columns |= {"id": literal(event_id), "revision": revision, "report": literal(event.report.to_json())}
    columns |= {"success": literal(event.success, Boolean)}
    fenced = select(*columns.values()).where(
        fences.c.component == event.component,
        fences.c.item == event.item,
        fences.c.fence == event.fence,
        fences.c.open.is_(True),
    )
    row = insert(connection, events).from_select(list(columns), fenced.with_for_update(read=True))
    return row.on_conflict_do_nothing().returning(events.c.id)


def _event(row: RowMapping) -> ItemEvent:
    """Make an ItemEvent of a row. An invalid report becomes a report with the error; an invalid instant, NEVER."""
    values = {name: row[name] for name in ItemEvent.__slots__ if name not in ("agent", "report", *_AS_TEXT)}
    try:
        report = Report.from_json(row["report"])
    except (ValueError, TypeError, KeyError) as error:
        report = Report(text=f"the stored report cannot be read: {error}")
    at: dict[str, datetime | None] = {name: _instant(row[name]) for name in _AS_TEXT}
    agent = f"{row['component']}-{row['version']}"
    return ItemEvent(
        **values,
        agent=agent,
        report=report,
        started=at["started"] or instants.NEVER,
        ended=at["ended"] or instants.NEVER,
        removed=at["removed"],
    )


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else instants.parse(text)
    except (ValueError, TypeError):
        return instants.NEVER
