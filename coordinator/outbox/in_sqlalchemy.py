"""The rows of an outbox in a table of SQLAlchemy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from coordinator.core.client.on_commit import AnySession, OnCommit, plain_session
from coordinator.core.jobs.request import JobRequest
from coordinator.errors import SettingsError
from coordinator.outbox.rows import TABLE, Row, text_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Engine, MetaData, Select, Table


def outbox_table(metadata: MetaData, name: str = TABLE, schema: str | None = None) -> Table:
    """Return the table of an outbox as a part of `metadata`: create it as your other tables, such as by Alembic."""
    from sqlalchemy import BigInteger, Column, Float, Integer, Table, Text

    return Table(
        name, metadata,
        # SQLite gives numbers of its own to this type alone.
        Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("app", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("written", Float, nullable=False),
        Column("error", Text, nullable=False, default="", server_default=""),
        schema=schema,
        sqlite_autoincrement=True,  # else the number of a deleted row is used again
    )  # fmt: skip


class _Mapped:
    """The class that a session adds an object of: a class of its own for each outbox."""

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class TableRows:
    """`table`: made by `outbox_table`; `engine`: connects to its database; `app`: the name of the Celery app."""

    def __init__(self, table: Table, engine: Engine, app: str) -> None:
        sqlalchemy = import_module("sqlalchemy")
        if not isinstance(table, sqlalchemy.Table) or not {*Row._fields, "app"} <= {*table.columns.keys()}:
            raise SettingsError(f"table= is made by outbox_table(metadata), not {table!r:.80}")
        if not isinstance(engine, sqlalchemy.Engine):
            raise SettingsError(f"engine= is a create_engine(…): the relay runs in a thread, not with {engine!r:.80}")
        self.app, self._table, self._engine = app, table, engine
        self.place = f"table {table.fullname} in {engine.url.render_as_string()}"
        self._mapped = type("OutboxRow", (_Mapped,), {})
        import_module("sqlalchemy.orm").registry().map_imperatively(self._mapped, table)

    def write(self, request: JobRequest, session: AnySession | None, committed: Callable[[], None]) -> None:
        plain = plain_session(session)
        # Not by a statement, which an AsyncSession would have to await.
        plain.add(self._mapped(app=self.app, job_id=request.id, request=text_of(request), written=time.time()))
        OnCommit.of(plain, _call_first).add(plain, committed)

    def read(self, most: int) -> list[Row]:
        columns = [self._table.c[name] for name in Row._fields]
        with self._engine.connect() as connection:
            found = connection.execute(self._select(*columns).order_by(self._table.c.number).limit(most))
            return [Row(*row) for row in found]

    def delete(self, numbers: Sequence[int]) -> None:
        with self._engine.begin() as connection:
            connection.execute(self._table.delete().where(self._table.c.number.in_(numbers)))

    def note(self, numbers: Sequence[int], error: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(self._table.update().where(self._table.c.number.in_(numbers)).values(error=error))

    def having(self, job_ids: Iterable[str]) -> set[str]:
        column = self._table.c.job_id
        with self._engine.connect() as connection:
            return set(connection.execute(self._select(column).where(column.in_(list(job_ids)))).scalars())

    def of_job(self, job_id: str) -> Row | None:
        columns = [self._table.c[name] for name in Row._fields]
        with self._engine.connect() as connection:
            found = connection.execute(self._select(*columns).where(self._table.c.job_id == job_id)).first()
            return None if found is None else Row(*found)

    def _select(self, *columns: ColumnElement[object]) -> Select[tuple[object, ...]]:
        mine: Select[tuple[object, ...]] = import_module("sqlalchemy").select(*columns)
        return mine.where(self._table.c.app == self.app)


def _call_first(committed: list[Callable[[], None]]) -> None:
    """Wake the relay once for a transaction."""
    for wake in committed[:1]:
        wake()
