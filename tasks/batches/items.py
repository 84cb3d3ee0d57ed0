"""The store of items and their events, in SQL.

One job at a time works on an item for a component, and its fence says which. `begin` notes the fence before the work
starts, and checks that the item still is what the component asks for. `append` is one insert, and it takes effect
only while that fence is the one noted last. So of two jobs that believe they hold an item, the earlier one stores
nothing, whenever it tries. A repair closes the fences of its item: work from before it stores nothing, either.

Component, item and attempt identify an event. So a repeated append stores nothing more.
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
    """The store. Raises UnusableDatabase."""

    def __init__(self, settings: Settings, *, may_be_newer: bool = False, keeps: bool = False) -> None:
        self.engine: Engine = open_database(
            settings.database, settings.host, BATCHES, may_be_newer=may_be_newer, keeps=keeps
        )

    def register(
        self, item: str, *, type: str = "batch", directory: str | None = None, priority: int | None = None
    ) -> bool:
        """Add an item. False: it is there already, and stays as it is. Raises ValueError."""
        with self.engine.begin() as connection:
            is_new = register(connection, item, type=type, directory=directory, priority=priority)
            if is_new:
                profiles.count(connection, [item])
            return is_new

    def item(self, item: str) -> Item:
        """Raises UnknownItem, and ValueError for a row that cannot be read."""
        with self.engine.connect() as connection:
            row = connection.execute(select(*COLUMNS).where(items.c.item == item)).first()
        if row is None:
            raise UnknownItem(item)
        try:
            return read_item(row)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"the item {item} cannot be read: {error}") from error

    def round_trips(self, batch: str) -> list[Item]:
        """All round trips of a batch, in their order. Raises ValueError for a row that cannot be read."""
        with self.engine.connect() as connection:
            return round_trips(connection, batch)

    def query(self, wanted: ItemConditions, after: str | None = None, limit: int = 100) -> ItemPage:
        """A page of items, by priority, then age. `after`: the cursor of the page before."""
        return page(self.engine, wanted, after, limit)

    def count(self, wanted: ItemConditions) -> int:
        """The number of items that are wanted now."""
        return count(self.engine, wanted)

    def profiles(self, names: Sequence[str]) -> dict[str, profiles.Profile]:
        """The type and the newest events of each of these items."""
        with self.engine.connect() as connection:
            return profiles.of_items(connection, names) if names else {}

    def kinds(self) -> set[str]:
        """The types of all events that items have or had."""
        return kinds(self.engine)

    def touch(self, item: str, *, directory: str | None = None) -> Item:
        """Note that the item has changed: its revision grows. `directory`: where it lies from now on."""
        values: _Values = {"revision": items.c.revision + 1, "modified": instants.now()}
        if directory is not None:
            values = {**values, "directory": directory}
        with self.engine.begin() as connection:
            _change(connection, item, values)
            profiles.count(connection, [item])
        return self.item(item)

    def prioritise(self, item: str, priority: int | None) -> None:
        """Set the priority: 1 goes first, 9 last, None after 9. The revision stays. Raises UnknownItem, ValueError."""
        with self.engine.begin() as connection:
            _change(connection, item, {"rank": rank_of(priority)})

    def begin(self, component: str, item: str, *, fence: int, wanted: ItemConditions | None = None) -> Item | None:
        """Begin work: note the fence, and return the item. None: it is not `wanted` any more, or cannot be read.

        Raises ItemLost where a greater fence was noted, and UnknownItem. Waits for a repair that is under way.
        """
        with self.engine.begin() as connection:
            lock(connection, item)
            _note_fence(connection, component, item, fence)
            row = connection.execute(select(*COLUMNS).where(items.c.item == item)).one()
            if wanted is not None and not is_wanted(connection, item, wanted):
                return None
            return item_of(row)

    def begun(self, component: str, names: Sequence[str], fence: int) -> set[str]:
        """The items among `names` on which work has begun with this fence or a later one, and no repair came since."""
        later = select(fences.c.item).where(
            fences.c.component == component, fences.c.item.in_(names), fences.c.fence >= fence, fences.c.open.is_(True)
        )
        with self.engine.connect() as connection:
            return set(connection.execute(later).scalars())

    def append(self, event: NewEvent) -> str:
        """Store an event, and return its id. An attempt that has stored its event already gets the id of that event.

        Raises ItemLost where a later job has begun work on the item, or a repair came since: nothing was stored.
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
        """Keep the result of finished work that may not be stored as an event any more."""
        row = {name: getattr(event, name) for name in orphans.c.keys() if name != "report"}  # noqa: SIM118
        with self.engine.begin() as connection:
            statement = insert(connection, orphans).values(**row, report=event.report.to_json())
            connection.execute(statement.on_conflict_do_nothing())

    def orphans(self, item: str | None = None, limit: int = 100) -> list[dict[str, Value]]:
        query = select(orphans).order_by(orphans.c.ended.desc()).limit(limit)
        if item is not None:
            query = query.where(orphans.c.item == item)
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def events(self, item: str, *, history: bool = False) -> list[ItemEvent]:
        """The events of the item, the oldest first. `history`: with removed events."""
        with self.engine.connect() as connection:
            return events_of(connection, item, history=history)


def register(
    connection: Connection, item: str, *, type: str, directory: str | None = None, priority: int | None = None
) -> bool:
    batch, number = parts_of(checked_name("item", item))
    now = instants.now()
    row: dict[str, Value] = {"item": item, "batch": batch, "round_trip": number, "type": checked_name("type", type)}
    row |= {"rank": rank_of(priority), "directory": directory, "registered": now, "modified": now, "revision": 1}
    statement = insert(connection, items).values(row).on_conflict_do_nothing()
    return connection.execute(statement.returning(items.c.number)).first() is not None


def lock(connection: Connection, item: str) -> None:
    """Lock the item until the end of the transaction, as its first statement. Raises UnknownItem."""
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
    """The newest event of each type that is not removed."""
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
    """An insert of one row where the event's fence is the item's, else of none."""
    current = select(items.c.revision).where(items.c.item == event.item).scalar_subquery()
    outdated = current != event.revision_read  # somebody else changed the item meanwhile
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
    """Read an event. Parts that cannot be read are named in its report, or replaced by NEVER."""
    values = {name: row[name] for name in ItemEvent.__slots__ if name not in ("agent", "report", *_AS_TEXT)}
    try:
        report = Report.from_json(row["report"])
    except (ValueError, TypeError, KeyError) as error:
        report = Report(text=f"this report cannot be read: {error}")
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
