"""A column type for instants, and inserts that may update a row, alike for SQLite and PostgreSQL."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Dialect, String, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from tasks import instants

Value = str | int | bool | bytes | datetime | None
"""The value of a column in a row."""

Key = TypeVar("Key", str, int)

AT_ONCE = 500
"""The most keys that one query may name."""


class Instant(TypeDecorator[datetime]):
    """A column of instants, kept as text: exact, ordered and readable in every database."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else instants.full(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else instants.parse(value)


def upsert(connection: Connection, table: Table, rows: Iterable[Mapping[str, Value]]) -> None:
    """Insert rows into a table. If a row with the same primary key exists, update all its other columns instead."""
    values = list(rows)
    if not values:
        return
    statement = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in values[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), values)


def insert(connection: Connection, table: Table) -> "sqlite.Insert | postgresql.Insert":
    """Build an INSERT for the connection's kind of database, with the methods `on_conflict_do_…`."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def portions(keys: Sequence[Key]) -> Iterable[Sequence[Key]]:
    """Split keys into parts of at most AT_ONCE (500), in order."""
    return (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
