"""Queries for items by what has happened to them.

Only the newest event of each type counts: the one that was stored last, whatever its instants. Removed events do not
count.

A page is found by the profiles of the items, of which there are few. A single item is checked by its events.
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
"""Instants are read as texts, so that a broken one spoils only its own row."""
_ORDER = items.c.rank, items.c.number


class Position(NamedTuple):
    """An item's position in the order. The rank of a broken row may be a text in SQLite, which sorts it last."""

    rank: int | str
    number: int


@dataclass(frozen=True, slots=True)
class ItemConditions:
    """Conditions for an item, all of which must hold. Each part lists types of events; `types` lists types of items.

    * past: the newest event of each type is a success.
    * past_failed: the newest event of each type is a failure.
    * future: there is no event of any of these types.
    * old: for each type there is no event, or the newest is of an older revision than the item's.
    """

    past: Sequence[str] = ()
    past_failed: Sequence[str] = ()
    future: Sequence[str] = ()
    old: Sequence[str] = ()
    types: Sequence[str] = ()

    def unless_stopped(self) -> Self:
        """These conditions, and that nobody has stopped the item."""
        return replace(self, future=tuple(dict.fromkeys([STOPPED, *self.future])))

    def fits(self, profile: Profile) -> bool:
        """True if the items of this profile are wanted."""
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
    """Items in order. `next`: the cursor of the next page, None at the end. `broken`: rows that cannot be read."""

    items: tuple[Item, ...]
    next: str | None
    broken: tuple[str, ...] = ()


def is_wanted(connection: Connection, item: str, wanted: ItemConditions) -> bool:
    """Check one item by its events. The caller has locked it."""
    return wanted.fits(profiles.of_items(connection, [item])[item])


def page(engine: Engine, wanted: ItemConditions, after: str | None, limit: int) -> ItemPage:
    """Read a page, by priority, then age. `after`: the last page's cursor. Raises InvalidJob for a bad cursor."""
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
    """The number of items that are wanted."""
    with _snapshot(engine) as connection:
        fitting = [number for number, profile in profiles.all_of(connection)[0].items() if wanted.fits(profile)]
        query = select(func.count()).select_from(items).where(items.c.profile.in_(select(_table(connection, fitting))))
        return int(connection.execute(query).scalar_one())


def kinds(engine: Engine) -> set[str]:
    """The types of all events that items have or had."""
    with engine.connect() as connection:
        return {kind for profile in profiles.all_of(connection)[0].values() for kind in profile.events}


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection on which all reads see one state of the database."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def _table(connection: Connection, numbers: Sequence[int]) -> TableValuedAlias:
    """These numbers, as a table with the column `value`."""
    if connection.dialect.name == "sqlite":
        return func.json_each(json.dumps(numbers)).table_valued("value")
    return func.unnest(literal(numbers, ARRAY(BigInteger))).table_valued("value").render_derived()


def _first(connection: Connection, fitting: list[int], edge: Position | None, limit: int) -> list[Position]:
    """The positions of the first items of these profiles. An index has the items of each profile in order."""
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
        if edge is not None:  # without the profile in it, PostgreSQL would walk through all items by rank
            each = each.where(tuple_(items.c.profile, *_ORDER) > _bound(edge, numbers.c.value))
        rows = each.lateral()
        query = select(rows.c.rank, rows.c.number).select_from(numbers.join(rows, true()))
    return [Position._make(row) for row in connection.execute(query.order_by(rows.c.rank, rows.c.number).limit(limit))]


def _bound(edge: Position, *before: ColumnElement[int]) -> Tuple:
    return tuple_(*before, type_coerce(edge.rank, BigInteger), literal(edge.number))


def _rows(connection: Connection, numbers: Sequence[int]) -> list[Row[*tuple[Value, ...]]]:
    """The rows of these items, in the same order."""
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
        raise InvalidJob(f"{after!r} is no cursor: give the cursor that the page before has shown")
    return Position(int(rank) if rank.isdecimal() else rank, int(number))


def item_of(row: Row[*tuple[Value, ...]]) -> Item | None:
    """The item; None for a row that cannot be read, which the log names."""
    try:
        return read_item(row)
    except (ValueError, TypeError, AttributeError) as error:
        logger.warning("the item %r cannot be read: %s", row.item, error)
        return None


def read_item(row: Row[*tuple[Value, ...]]) -> Item:
    """Raises ValueError, TypeError or AttributeError."""
    rank, revision = int(row.rank), int(row.revision)
    if not 1 <= rank <= NO_PRIORITY:
        raise ValueError(f"its priority is {rank}")
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
