"""Finds items by their events.

Of an item's events of one type, only the newest counts: the event that was stored last, whatever its instants. Removed
events do not count.

A page of items is found through their stored profiles (see profiles.py). A single item is checked by its events.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Row,
    String,
    TableValuedAlias,
    Tuple,
    func,
    literal,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY

from coordinator import InvalidJob
from tasks import instants
from tasks.batches import profiles
from tasks.batches.profiles import Profile
from tasks.batches.schema import items
from tasks.batches.values import NO_PRIORITY, STOPPED, Item, checked_name
from tasks.database import Value, portions

logger = logging.getLogger(__name__)

_INSTANTS = ("registered", "modified")
COLUMNS = [type_coerce(column, String).label(column.name) if column.name in _INSTANTS else column for column in items.c]
"""The columns of an item. Instants are read as text, so that an invalid instant makes no other row unreadable."""
_ORDER = items.c.rank, items.c.number


class Position(NamedTuple):
    """An item's position in the order by priority, then age. `rank`: 1 to 9, or 10 for no priority.

    In SQLite the rank of an invalid row may be a text, which comes after all numbers.
    """

    rank: int | str
    number: int


@dataclass(frozen=True, slots=True)
class ItemConditions:
    """Conditions for an item, all of which must hold. An empty field is no condition.

    * past: types of events; the item's newest event of each is a success.
    * past_failed: types of events; the item's newest event of each is a failure.
    * future: types of events; the item has no event of any of them.
    * old: types of events; the item has no event of the type, or the newest is from before the item's last change.
    * types: types of items, of which the item has one.
    """

    past: Sequence[str] = ()
    past_failed: Sequence[str] = ()
    future: Sequence[str] = ()
    old: Sequence[str] = ()
    types: Sequence[str] = ()

    def unless_stopped(self) -> Self:
        """Return a copy of these conditions which no stopped item meets."""
        return replace(self, future=tuple(dict.fromkeys([STOPPED, *self.future])))

    def fits(self, profile: Profile) -> bool:
        """True if items with this profile meet the conditions."""
        events = profile.events
        return (
            all(kind in events and events[kind].success for kind in self.past)
            and all(kind in events and not events[kind].success for kind in self.past_failed)
            and not any(kind in events for kind in self.future)
            and all(kind not in events or events[kind].old for kind in self.old)
            and (not self.types or profile.type in self.types)
        )


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A page of items. `next`: the cursor of the next page; None on the last page.

    `broken`: the ids of items that the page leaves out, since their rows have invalid values.
    """

    items: tuple[Item, ...]
    next: str | None
    broken: tuple[str, ...] = ()


def is_wanted(connection: Connection, item: str, wanted: ItemConditions) -> bool:
    """True if the item, which the caller has locked, meets the conditions `wanted`. Reads the item's events."""
    return wanted.fits(profiles.of_items(connection, [item])[item])


def page(engine: Engine, wanted: ItemConditions, after: str | None, limit: int) -> ItemPage:
    """Read at most `limit` items that meet the conditions `wanted`, by priority, then age.

    `after`: the field `next` of the previous page; None for the first page. Raises InvalidJob for an invalid cursor.
    """
    edge = _edge(after)
    with _snapshot(engine) as connection:
        known, broken = profiles.all_of(connection)
        positions = _first(
            connection, [number for number, profile in known.items() if wanted.fits(profile)], edge, limit
        )
        rows = _rows(connection, [position.number for position in positions])
    if broken:
        profiles.mend(engine, broken)
        return page(engine, wanted, after, limit)
    read = [(row, item_of(row)) for row in rows]
    last = positions[-1] if len(positions) == limit else None
    return ItemPage(
        tuple(item for _, item in read if item is not None),
        None if last is None else f"{last.rank}.{last.number}",
        tuple(str(row.item) for row, item in read if item is None),
    )


def count(engine: Engine, wanted: ItemConditions) -> int:
    """Return the number of items that meet the conditions `wanted`."""
    with _snapshot(engine) as connection:
        fitting = [number for number, profile in profiles.all_of(connection)[0].items() if wanted.fits(profile)]
        query = select(func.count()).select_from(items).where(items.c.profile.in_(select(_table(connection, fitting))))
        return int(connection.execute(query).scalar_one())


def kinds(engine: Engine) -> set[str]:
    """Return the types of all events that any item has or had."""
    with engine.connect() as connection:
        return {kind for profile in profiles.all_of(connection)[0].values() for kind in profile.events}


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a connection with a transaction in which all reads see the same state of the database."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def _table(connection: Connection, numbers: Sequence[int]) -> TableValuedAlias:
    """Build a table expression with the numbers in the column `value`, for joins."""
    if connection.dialect.name == "sqlite":
        return func.json_each(json.dumps(numbers)).table_valued("value")
    return func.unnest(literal(numbers, ARRAY(BigInteger))).table_valued("value").render_derived()


def _first(connection: Connection, fitting: list[int], edge: Position | None, limit: int) -> list[Position]:
    """Return the positions of the first `limit` items whose profile numbers are in `fitting`.

    `edge`: the position after which the page begins; None for the first page. The index `items_by_profile` has the
    items of each profile in order, so the query reads no more than `limit` items of each.
    """
    numbers = _table(connection, fitting)
    each = select(*_ORDER).where(items.c.profile == numbers.c.value).order_by(*_ORDER).limit(limit)
    rows: FromClause
    if connection.dialect.name == "sqlite":
        if edge is not None:
            each = each.where(tuple_(*_ORDER) > _bound(edge))
        rows = items.alias()
        first = rows.c.number.in_(each.with_only_columns(items.c.number).correlate(numbers))
        query = select(rows.c.rank, rows.c.number).select_from(numbers.join(rows, first))
    else:
        if edge is not None:  # PostgreSQL would read all items by rank if the profile were not in the comparison
            each = each.where(tuple_(items.c.profile, *_ORDER) > _bound(edge, numbers.c.value))
        rows = each.lateral()
        query = select(rows.c.rank, rows.c.number).select_from(numbers.join(rows, true()))
    return [Position._make(row) for row in connection.execute(query.order_by(rows.c.rank, rows.c.number).limit(limit))]


def _bound(edge: Position, *before: ColumnElement[int]) -> Tuple:
    return tuple_(*before, type_coerce(edge.rank, BigInteger), literal(edge.number))


def _rows(connection: Connection, numbers: Sequence[int]) -> list[Row[*tuple[Value, ...]]]:
    """Read the rows of the items with these numbers, in the order of `numbers`."""
    by_number: dict[int, Row[*tuple[Value, ...]]] = {}
    for portion in portions(numbers):
        rows = connection.execute(select(*COLUMNS).where(items.c.number.in_(portion)))
        by_number |= {row.number: row for row in rows}
    return [by_number[number] for number in numbers]


def _edge(after: str | None) -> Position | None:
    if after is None:
        return None
    rank, _, number = after.rpartition(".")
    if not number.isdecimal() or not rank:
        raise InvalidJob(f"{after!r} is not a cursor: give the cursor of the previous page")
    return Position(int(rank) if rank.isdecimal() else rank, int(number))


def item_of(row: Row[*tuple[Value, ...]]) -> Item | None:
    """Make an Item of a row. Returns None, and logs a warning, if a value in the row is invalid."""
    try:
        return read_item(row)
    except (ValueError, TypeError, AttributeError) as error:
        logger.warning("the item %r cannot be read: %s", row.item, error)
        return None


def read_item(row: Row[*tuple[Value, ...]]) -> Item:
    """Make an Item of a row. Raises ValueError, TypeError or AttributeError if a value in the row is invalid."""
    rank, revision = int(row.rank), int(row.revision)
    if not 1 <= rank <= NO_PRIORITY:
        raise ValueError(f"the item has the priority {rank}, which is not within 1 to {NO_PRIORITY}")
    return Item(
        id=checked_name("item", row.item),
        batch=str(row.batch),
        round_trip=None if row.round_trip is None else int(row.round_trip),
        type=str(row.type),
        priority=None if rank == NO_PRIORITY else rank,
        directory=None if row.directory is None else str(row.directory),
        registered=instants.parse(row.registered),
        modified=instants.parse(row.modified),
        revision=revision,
    )
