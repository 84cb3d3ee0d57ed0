"""Opens the database, after bringing its tables up to date under a lock.

SQLite (write-ahead log) serves one host, since its readers and writers share memory. PostgreSQL serves any number.
Each use opens a connection and closes it again. The processes of components keep one, since they use the database
twice for each item. Before such a process forks, it closes the connection, so that a fork inherits none.

Tables come in groups, such as the catalog's. A group has a folder of migrations, `v0001_….py` and so on, and a table
that holds the number of the last one. The process that opens a database takes its lock, reads that number, and runs
the migrations that are missing, all in one transaction. So several processes that start at once migrate once, and
one that dies on the way leaves what was there.

A migration only adds tables, and columns that may stay empty. So a node of an older version goes on beside a migrated
database, with the processes that it still starts. A node, beat or command of an older version does not start there.

What the dashboard asks ends with the time of its page (`coordinator.store.client.until`): each database stops a query
that goes on behind it, and a PostgreSQL that lets no page in for two seconds is away.
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
"""The longest wait of a migration for locks of PostgreSQL; other users of the tables wait behind it."""

SILENCE: dict[str, int | str] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "options": "-c idle_in_transaction_session_timeout=30s",
}
"""Options of libpq (seconds, then ms) after which a silent PostgreSQL counts as away, and a silent client for it.

Without them, a process would wait for hours for a server that is cut off, and other hosts for the rows that a host
locked before it was cut off. The database's address may override them.
"""


PAGE_CONNECTS = 2
"""Seconds for which a page waits for a connection to PostgreSQL: a silent one must not hold the dashboard's readers."""


class Pooling(TypedDict, total=False):
    """Options of SQLAlchemy's connection pool."""

    poolclass: Required[type[Pool]]
    pool_size: int
    max_overflow: int
    pool_pre_ping: bool


CLOSED: Pooling = {"poolclass": NullPool}
KEPT: Pooling = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": -1, "pool_pre_ping": True}
"""Keep one connection, and test it before each use; threads that need more at once open more."""

meta = Table("meta", MetaData(), Column("name", String(64), primary_key=True), Column("value", Text, nullable=False))


class UnusableDatabase(Exception):
    """The database belongs to another host or version of the program; the sentence says what to do."""


def open_database(url: str, host: str, group: Group, *, may_be_newer: bool = False, keeps: bool = False) -> Engine:
    """The engine, once the group's tables are up to date. Raises UnusableDatabase.

    `may_be_newer`: accept newer tables, for a node that runs since before an upgrade. `keeps`: keep a connection open
    between uses.
    """
    engine = create_engine(url, connect_args=_patience(make_url(url)), **(KEPT if keeps else CLOSED))
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
        raise ValueError("the address of the catalog names no file and no server: sqlite:////folder/file, …")
    event.listen(engine, "connect", _configure_sqlite)
    path = Path(file).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # SQLite does not wait for a lock when it changes to a write-ahead log
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            if _is_current(connection, group, {"host": host, "boot": _boot(), **_identity(connection)}):
                return engine
        with engine.begin() as connection:
            # Python's sqlite3 begins no transaction before DDL, so begin one here.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            meta.create(connection, checkfirst=True)
            _claim(connection, str(path), host)
            _update_tables(connection, group, may_be_newer)
    return engine


def _hasten(dialect: Dialect, record: object, args: object, parameters: dict[str, object]) -> None:
    if time_left() is not None and "connect_timeout" in parameters:
        parameters["connect_timeout"] = PAGE_CONNECTS


def _limit(connection: Connection) -> None:
    """Have the database stop what this transaction asks, once the time of its page is over."""
    seconds = time_left()
    if connection.dialect.name != "sqlite":
        if seconds is not None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, int(1000 * seconds) + 1)}")
        return
    ends = time.monotonic() + (seconds or 0)
    over = None if seconds is None else lambda: time.monotonic() > ends  # None: a kept connection had another
    cast(SqliteConnection, connection.connection.dbapi_connection).set_progress_handler(over, 10_000)


def _say_too_late(context: ExceptionContext) -> None:
    if (seconds := time_left()) is not None and seconds <= 0:
        raise TimeoutError("the time for these queries is over") from context.original_exception


def _close(reference: "ref[Engine]") -> None:
    """Close the idle connection before a fork."""
    engine = reference()
    if engine is not None:
        engine.dispose()


def _patience(url: URL) -> dict[str, int | str]:
    if url.get_dialect().driver not in ("psycopg", "psycopg2"):  # the drivers that use libpq
        return {}
    return {name: value for name, value in SILENCE.items() if name not in url.query}


def _is_current(connection: Connection, group: Group, claimed: Mapping[str, str]) -> bool:
    """True if nothing has to change, so that the process needs no lock."""
    return _version(connection, group) == group.versions()[-1] and claimed.items() <= _noted(connection).items()


def _version(connection: Connection, group: Group) -> str | None:
    """The number of the group's last migration there; None where there was none."""
    if not inspect(connection).has_table(group.version_table):
        return None
    version: str | None = connection.execute(text(f"SELECT version_num FROM {group.version_table}")).scalar()
    return version


def _update_tables(connection: Connection, group: Group, may_be_newer: bool) -> None:
    """Run the migrations that are missing, within the connection's transaction and under the database's lock."""
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
            f"which {made_by} made, and this program, celery-coordinator {VERSION}, knows versions up to {newest}. "
            "Install the version that made them, or a later one; or put back a backup from before the upgrade."
        )
    try:
        _migrate(connection, group)
    except DBAPIError as error:
        if error.connection_invalidated:  # it is away
            raise
        why, _, _ = str(error.orig).partition("\n")
        raise UnusableDatabase(
            f"the database {shown} is older than this program: its tables of the {group.name} have version "
            f"{version or 'none'}, and this program, celery-coordinator {VERSION}, needs {newest}. It could not "
            f"migrate them: {why}. Start one node, or any command that reads the database, with an account that may "
            "change its tables."
        ) from error


def _migrate(connection: Connection, group: Group) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{DDL_PATIENCE}'"))
    meta.create(connection, checkfirst=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each step of its start
    from tasks.database.migrate import migrate  # Alembic costs a process a quarter second

    migrate(connection, group)
    upsert(connection, meta, [{"name": f"{group.name} made by", "value": f"celery-coordinator {VERSION}"}])


def _configure_sqlite(connection: SqliteConnection, record: ConnectionPoolEntry) -> None:
    # FULL: a commit outlives a power cut. Only then may the nodelist say that its objects were harvested.
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA synchronous = FULL")


def _boot() -> str:
    """The id of this run of the kernel. All containers of one machine have the same."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _claim(connection: Connection, database: str, host: str) -> None:
    """Claim the database for this host. The name of a host outlives a reboot; its containers share the boot id."""
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
    """Which database this is, whatever its address. A copy of a PostgreSQL is another one."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            return _identity(connection)["identity"]
        server = (
            "SELECT system_identifier, oid FROM pg_control_system(), pg_database WHERE datname = current_database()"
        )
        return "/".join(map(str, connection.execute(text(server)).one()))


def name_of(engine: Engine) -> str:
    """Its address without user and password."""
    url = engine.url
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def _identity(connection: Connection) -> dict[str, str]:
    """That of a SQLite file; a new one where it has none yet."""
    return {"identity": _noted(connection).get("identity") or uuid.uuid4().hex}


def _noted(connection: Connection) -> Mapping[str, str]:
    if not inspect(connection).has_table(meta.name):
        return {}
    return {row.name: row.value for row in connection.execute(select(meta))}
