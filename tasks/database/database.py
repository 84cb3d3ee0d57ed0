"""Opens the database, after migrating its tables under a lock.

SQLite (with a write-ahead log) serves the processes of one host, since its readers and writers share memory. PostgreSQL
serves any number of hosts. Each use opens a connection and closes it again. Only a process that works on items keeps a
connection open, since it uses the database twice for each item. It closes the connection before it forks, so that no
fork inherits it.

Tables come in groups, such as the catalog's. A group has a folder of migrations, `v0001_….py` and so on, and a table
with the number of the last migration. The process that opens a database locks the database, reads that number, and runs
the missing migrations, all in one transaction. So if several processes start at once, one of them migrates, and a
process that dies during the migration changes nothing.

A migration only adds tables and nullable columns. So a running node of an older version, with its pool processes, keeps
working with the migrated database. A node, beat or command of an older version that starts afterwards refuses it.

Queries for a page of the dashboard must end by the deadline of the page (`until` in coordinator/core/store/client.py):
the database then cancels them. A PostgreSQL that accepts no connection for a page within two seconds counts as away.
"""

import fcntl
import logging
import os
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from typing import Required, TypedDict, cast
from weakref import ref

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Dialect,
    Engine,
    ExceptionContext,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool, QueuePool

from coordinator.extending import time_left
from tasks.database.columns import upsert
from tasks.database.group import Group
from tasks.version import VERSION

ADVISORY_LOCK = 7240731
DDL_PATIENCE = "30s"
"""How long a migration waits for each lock of a table in PostgreSQL: all other users of the table wait behind it."""

SILENCE: dict[str, int | str] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "options": "-c idle_in_transaction_session_timeout=30s",
}
"""Options of libpq (in seconds; tcp_user_timeout in milliseconds) after which a PostgreSQL that does not answer, or a
client that does not go on, counts as away.

Without these options, a process would wait for hours for a server that is cut off from the network, and other hosts
would wait for the rows that a host had locked before it was cut off. The URL of the database may override them.
"""


PAGE_CONNECTS = 2
"""Seconds for which a page of the dashboard waits for a connection to PostgreSQL, which may not answer at all."""


class Pooling(TypedDict, total=False):
    """Options of `create_engine` for SQLAlchemy's connection pool."""

    poolclass: Required[type[Pool]]
    pool_size: int
    max_overflow: int
    pool_pre_ping: bool


CLOSED: Pooling = {"poolclass": NullPool}
"""Open a connection for each use, and close it again."""
KEPT: Pooling = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": -1, "pool_pre_ping": True}
"""Keep one connection open, and test it before each use. Threads that use more at a time open more for that time."""

meta = Table("meta", MetaData(), Column("name", String(64), primary_key=True), Column("value", Text, nullable=False))


class UnusableDatabase(Exception):
    """Raised to refuse a database that belongs to another host or another version of the program.

    The message says what to do.
    """


def open_database(url: str, host: str, group: Group, *, may_be_newer: bool = False, keeps: bool = False) -> Engine:
    """Migrate the tables of a group in the database at `url`, and return an engine for the database.

    `host`: this host's name, to which a SQLite file then belongs. `may_be_newer`: accept tables that a newer version of
    the program has migrated, for a node that was started before an upgrade. `keeps`: keep a connection open between
    uses. Raises UnusableDatabase.
    """
    engine = create_engine(url, connect_args=_timeouts(make_url(url)), **(KEPT if keeps else CLOSED))
    event.listen(engine, "do_connect", _hasten)
    event.listen(engine, "begin", _limit)
    event.listen(engine, "handle_error", _say_too_late)
    if keeps:
        os.register_at_fork(before=partial(_close, ref(engine)))
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            if _is_current(connection, group, {}):
                return engine
            connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
            _update_tables(connection, group, may_be_newer)
        return engine
    file = make_url(url).database
    if not file or file == ":memory:":
        raise ValueError("the address of the catalog has neither a file nor a server: give sqlite:////folder/file, …")
    event.listen(engine, "connect", _configure_sqlite)
    path = Path(file).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # wait here, since `PRAGMA journal_mode` does not wait for other processes
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            if _is_current(connection, group, {"host": host, "boot": _boot(), **_identity(connection)}):
                return engine
        with engine.begin() as connection:
            # Python's sqlite3 begins no transaction before CREATE or ALTER, so begin one here.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            meta.create(connection, checkfirst=True)
            _claim(connection, str(path), host)
            _update_tables(connection, group, may_be_newer)
    return engine


def _hasten(dialect: Dialect, record: object, args: object, parameters: dict[str, object]) -> None:
    """Shorten the connection timeout of PostgreSQL for a page of the dashboard. SQLAlchemy calls this to connect."""
    if time_left() is not None and "connect_timeout" in parameters:
        parameters["connect_timeout"] = PAGE_CONNECTS


def _limit(connection: Connection) -> None:
    """Have the database cancel the queries of a transaction at the deadline of the dashboard's page, if there is one.

    SQLAlchemy calls this when a transaction begins.
    """
    seconds = time_left()
    if connection.dialect.name != "sqlite":
        if seconds is not None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, int(1000 * seconds) + 1)}")
        return
    ends = time.monotonic() + (seconds or 0)
    over = None if seconds is None else lambda: time.monotonic() > ends  # None: remove an earlier handler
    cast(SqliteConnection, connection.connection.dbapi_connection).set_progress_handler(over, 10_000)


def _say_too_late(context: ExceptionContext) -> None:
    """Raise TimeoutError instead of a database error if the deadline of the dashboard's page is over."""
    if (seconds := time_left()) is not None and seconds <= 0:
        raise TimeoutError("the time for these queries is over") from context.original_exception


def _close(reference: "ref[Engine]") -> None:
    """Close the idle connection of an engine, which `reference` refers to weakly, before this process forks."""
    engine = reference()
    if engine is not None:
        engine.dispose()


def _timeouts(url: URL) -> dict[str, int | str]:
    """Return the options in SILENCE that the URL does not set; {} for a driver that does not use libpq."""
    if url.get_dialect().driver not in ("psycopg", "psycopg2"):  # the drivers that use libpq
        return {}
    return {name: value for name, value in SILENCE.items() if name not in url.query}


def _is_current(connection: Connection, group: Group, claimed: Mapping[str, str]) -> bool:
    """True if the group's tables need no migration and the table `meta` has all entries of `claimed`.

    Then the process need not lock the database.
    """
    return _version(connection, group) == group.versions()[-1] and claimed.items() <= _noted(connection).items()


def _version(connection: Connection, group: Group) -> str | None:
    """Read the number of the last migration of the group that has run in the database; None before the first."""
    if not inspect(connection).has_table(group.version_table):
        return None
    version: str | None = connection.execute(text(f"SELECT version_num FROM {group.version_table}")).scalar()
    return version


def _update_tables(connection: Connection, group: Group, may_be_newer: bool) -> None:
    """Run the missing migrations of a group, in the connection's transaction, which has locked the database.

    Raises UnusableDatabase if the tables are newer than this program, or the database refuses the migration.
    """
    *_, newest = versions = group.versions()
    version = _version(connection, group)
    if version == newest:
        return
    shown = connection.engine.url.render_as_string(hide_password=True)
    if version is not None and version not in versions:
        if may_be_newer:
            return
        made_by = _noted(connection).get(f"{group.name} made by", "an unknown version")
        raise UnusableDatabase(
            f"the database {shown} is newer than this program: its tables of the {group.name} have version {version}, "
            f"which {made_by} made. This program, celery-coordinator {VERSION}, knows versions up to {newest}. "
            "Install the version that made them, or a later one; or restore a backup from before the upgrade."
        )
    try:
        _migrate(connection, group)
    except DBAPIError as error:
        if error.connection_invalidated:  # the server is away: no fault of the migration
            raise
        why, _, _ = str(error.orig).partition("\n")
        raise UnusableDatabase(
            f"the database {shown} is older than this program: its tables of the {group.name} have version "
            f"{version or 'none'}, and this program, celery-coordinator {VERSION}, needs {newest}. It could not "
            f"migrate them: {why}. Start one node, or any command that reads the database, with an account that may "
            "change its tables."
        ) from error


def _migrate(connection: Connection, group: Group) -> None:
    """Run the missing migrations with Alembic, and store in the table `meta` which version of the program did that."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{DDL_PATIENCE}'"))
    meta.create(connection, checkfirst=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # at INFO, Alembic logs each step of its start
    from tasks.database.migrate import migrate  # imported here, since importing Alembic takes a quarter of a second

    migrate(connection, group)
    upsert(connection, meta, [{"name": f"{group.name} made by", "value": f"celery-coordinator {VERSION}"}])


def _configure_sqlite(connection: SqliteConnection, record: ConnectionPoolEntry) -> None:
    # busy_timeout (milliseconds): wait for locks of other processes. synchronous = FULL: a commit outlives a power cut,
    # so that the nodelist never has a date up to which objects were harvested that the database has lost.
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA synchronous = FULL")


def _boot() -> str:
    """Return the id that the kernel took at the last boot. All containers of one machine have the same."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _claim(connection: Connection, database: str, host: str) -> None:
    """Store that a SQLite file belongs to this host, in the table `meta`. Raises UnusableDatabase if it is another's.

    The file belongs to this host if its host name (which outlives a reboot) or its boot id (which all containers of a
    machine share) is that of this host.
    """
    mine = {"host": host, "boot": _boot(), **_identity(connection)}
    noted = _noted(connection)
    if noted.get("host") not in (None, host) and noted.get("boot") != mine["boot"]:
        raise UnusableDatabase(
            f"the SQLite catalog {database} belongs to host {noted['host']}, and this is {host}. SQLite serves one "
            "host only: let all nodes share a PostgreSQL (TASKS_DATABASE_URL=postgresql+psycopg://user@server/name). "
            f"If this is the same machine under a new name, set TASKS_HOST={noted['host']}."
        )
    if not mine.items() <= noted.items():
        upsert(connection, meta, [{"name": name, "value": value} for name, value in mine.items()])


def identity(engine: Engine) -> str:
    """Return an id of the database that does not depend on its address.

    A PostgreSQL database restored on another server has another id; a copied SQLite file has the same.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            return _identity(connection)["identity"]
        server = (
            "SELECT system_identifier, oid FROM pg_control_system(), pg_database WHERE datname = current_database()"
        )
        return "/".join(map(str, connection.execute(text(server)).one()))


def name_of(engine: Engine) -> str:
    """Return the URL of the database, without user and password."""
    url = engine.url
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def _identity(connection: Connection) -> dict[str, str]:
    """Return the entry of the table `meta` with the id of a SQLite file; a new id if the file has none yet."""
    return {"identity": _noted(connection).get("identity") or uuid.uuid4().hex}


def _noted(connection: Connection) -> Mapping[str, str]:
    """Read all entries of the table `meta`; none before the table exists."""
    if not inspect(connection).has_table(meta.name):
        return {}
    return {row.name: row.value for row in connection.execute(select(meta))}
