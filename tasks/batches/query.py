"""Which items are asked for, by what has happened to them.

The newest event of a type counts, in each of these questions. Newest is the event that the store took last, so equal
instants make no difference. An event that a repair removed counts nowhere.

A page is found by the profiles of the items, of which there are few. Only an item that has changed since it was
counted is asked by its events, as one item alone always is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

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
    and_,
    exists,
    func,
    literal,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY

from tasks.batches import profiles
from tasks.batches.profiles import Profile
from tasks.batches.schema import events, items
from tasks.batches.values import NO_PRIORITY, STOPPED, Item, checked_name
from tasks.database import Value, portions
from tasks.member_node import instants

logger = logging.getLogger(__name__)

V = TypeVar("V")

_INSTANTS = ("registered", "modified")
COLUMNS = [type_coerce(one, String).label(one.name) if one.name in _INSTANTS else one for one in items.c]
"""Read as texts where a value may be broken: a row that cannot be read hides no other."""
_PLACE = items.c.rank, items.c.number


class Place(NamedTuple):
    """An item's place in the order. The rank of a broken row may be a text in SQLite, which has it come last."""

    rank: int | str
    number: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Each of these must hold; an empty part asks for nothing. All are types of events, `types` are types of items.

    * past: each has a newest event, and it is a success.
    * past_failed: each has a newest event, and it is a failure.
    * future: there is no event, whatever its outcome.
    * old: there is no event, or its newest is of an older revision than the item's.
    """

    past: Sequence[str] = ()
    past_failed: Sequence[str] = ()
    future: Sequence[str] = ()
    old: Sequence[str] = ()
    types: Sequence[str] = ()

    def unless_stopped(self) -> Self:
        """As components ask: never for an item that somebody stopped."""
        return replace(self, future=tuple(dict.fromkeys([STOPPED, *self.future])))

    def fits(self, profile: Profile) -> bool:
        """Whether the items of this profile are wanted."""
        found = profile.events
        return (
            all(kind in found and found[kind].success for kind in self.past)
            and all(kind in found and not found[kind].success for kind in self.past_failed)
            and not any(kind in found for kind in self.future)
            and all(kind not in found or found[kind].old for kind in self.old)
            and (not self.types or profile.type in self.types)
        )

    def conditions(self) -> list[ColumnElement[bool]]:
        # The event that a component makes itself tells most items apart, and it is the last of `future`.
        found: list[ColumnElement[bool]] = [~_any(kind) for kind in reversed(self.future)]
        found += [_newest(events.c.success, kind).is_(True) for kind in self.past]
        found += [_newest(events.c.success, kind).is_(False) for kind in self.past_failed]
        found += [func.coalesce(_newest(events.c.revision, kind), -1) < items.c.revision for kind in self.old]
        return found + ([items.c.type.in_(self.types)] if self.types else [])


@dataclass(frozen=True, slots=True)
class Page:
    """Items in order, and the cursor of the next page; None: there is none. `broken`: the rows that cannot be read."""

    items: tuple[Item, ...]
    next: str | None
    broken: tuple[str, ...] = ()


def _of(kind: str) -> ColumnElement[bool]:
    return and_(events.c.item == items.c.item, events.c.type == kind, events.c.removed.is_(None))


def _newest(column: ColumnElement[V], kind: str) -> ColumnElement[V]:
    query = select(column).where(_of(kind)).order_by(events.c.number.desc()).limit(1)
    return query.correlate(items).scalar_subquery()


def _any(kind: str) -> ColumnElement[bool]:
    return exists().where(_of(kind)).correlate(items)


def is_wanted(connection: Connection, item: str, wanted: Wanted) -> bool:
    query = select(items.c.number).where(items.c.item == item, *wanted.conditions())
    return connection.execute(query).first() is not None


def page(engine: Engine, wanted: Wanted, after: str | None, limit: int) -> Page:
    """One page, by priority, then age. `after`: the cursor of the page before. Raises ValueError for a bad cursor."""
    edge = _edge(after)
    with _snapshot(engine) as connection:
        known, broken = profiles.all_of(connection)
        fitting = [number for number, one in known.items() if wanted.fits(one)]
        late = list(connection.execute(profiles.uncounted(broken)).scalars())
        is_late = items.c.number.in_(select(_table(connection, late).c.value))
        first = _first(connection, fitting, edge, [~is_late] if late else [], limit)
        if late:
            asked = connection.execute(select(*_PLACE).where(is_late, *wanted.conditions()))
            first += [place for place in map(Place._make, asked) if edge is None or _order(place) > _order(edge)]
        places = sorted(first, key=_order)[:limit]
        rows = _rows(connection, [place.number for place in places])
    found = [(row, item_of(row)) for row in rows]
    last = places[-1] if len(places) == limit else None
    return Page(
        tuple(one for _, one in found if one is not None),
        None if last is None else f"{last.rank}.{last.number}",
        tuple(str(row.item) for row, one in found if one is None),
    )


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """All that is read within saw the same changes."""
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


def _first(
    connection: Connection, fitting: list[int], edge: Place | None, more: list[ColumnElement[bool]], limit: int
) -> list[Place]:
    """The places of the first items of these profiles. An index has those of each profile in order."""
    numbers = _table(connection, fitting)
    each = select(*_PLACE).where(items.c.profile == numbers.c.value, *more).order_by(*_PLACE).limit(limit)
    found: FromClause
    if connection.dialect.name == "sqlite":
        if edge is not None:
            each = each.where(tuple_(*_PLACE) > _bound(edge))
        found = items.alias()
        its_first = found.c.number.in_(each.with_only_columns(items.c.number).correlate(numbers))
        query = select(found.c.rank, found.c.number).select_from(numbers.join(found, its_first))
    else:
        if edge is not None:  # without the profile in it, PostgreSQL would walk through all items by rank
            each = each.where(tuple_(items.c.profile, *_PLACE) > _bound(edge, numbers.c.value))
        found = each.lateral()
        query = select(found.c.rank, found.c.number).select_from(numbers.join(found, true()))
    return [Place._make(row) for row in connection.execute(query.order_by(found.c.rank, found.c.number).limit(limit))]


def _bound(edge: Place, *before: ColumnElement[int]) -> Tuple:
    return tuple_(*before, type_coerce(edge.rank, BigInteger), literal(edge.number))


def _order(place: Place) -> tuple[bool, int | str, int]:
    """As the database has it."""
    return isinstance(place.rank, str), place.rank, place.number


def _rows(connection: Connection, numbers: Sequence[int]) -> list[Row[*tuple[Value, ...]]]:
    """In this order."""
    found: dict[int, Row[*tuple[Value, ...]]] = {}
    for portion in portions(numbers):
        rows = connection.execute(select(*COLUMNS).where(items.c.number.in_(portion)))
        found |= {row.number: row for row in rows}
    return [found[number] for number in numbers]


def _edge(after: str | None) -> Place | None:
    if after is None:
        return None
    rank, _, number = after.rpartition(".")
    if not number.isdecimal() or not rank:
        raise ValueError(f"{after!r} is no cursor: give the one that the page before has shown")
    return Place(int(rank) if rank.isdecimal() else rank, int(number))


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
