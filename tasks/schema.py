"""The tables, and the one way to open the database they are in.

SQLite (write-ahead log) serves one host: its readers and writers share memory. PostgreSQL serves any number.
Connections are opened per use and never kept: a fork inherits none.
"""

import fcntl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.pool import NullPool

from tasks.instants import Instant

metadata = MetaData()

members = Table(
    "members",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("fence", BigInteger, nullable=False, server_default="0"),  # the greatest that ever wrote
    Column("last_harvested", Instant),
    Column("last_complete", Instant),
    Column("ran_at", Instant),
    Column("outcome", Text),
    Column("error", Text),
)

objects = Table(
    "objects",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("listed", Instant, nullable=False),  # the date the listing gave, by which a repetition is known
    Column("modified", Instant, nullable=False),  # the date the system metadata gave
    Column("format_id", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("algorithm", Text, nullable=False),
    Column("serial_version", BigInteger),
    Column("archived", Boolean, nullable=False),
    Column("obsoletes", Text),
    Column("obsoleted_by", Text),
    Column("document", LargeBinary, nullable=False),  # the system metadata as it came
    Column("fence", BigInteger, nullable=False),
    Index("objects_by_date", "member", "listed"),
)

cursors = Table(
    "cursors",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("started_from", Instant, nullable=False),
    Column("position", Instant, nullable=False),
)

failures = Table(
    "failures",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("listed", Instant),
    Column("reason", Text, nullable=False),
    Column("status", Integer),
    Column("tries", Integer, nullable=False),
    Column("failed_at", Instant, nullable=False),
    Column("next_try", Instant, nullable=False),
    Index("failures_by_next_try", "member", "next_try"),
)

meta = Table("meta", metadata, Column("name", String(64), primary_key=True), Column("value", Text, nullable=False))


class ForeignHost(Exception):
    """A SQLite catalog belongs to another host."""

    def __init__(self, database: str, owner: str, host: str) -> None:
        super().__init__(
            f"the SQLite catalog {database} belongs to host {owner}, and this is {host}. SQLite serves one host only: "
            "let all nodes share a PostgreSQL (TASKS_DATABASE_URL=postgresql+psycopg://user@server/name), or give each "
            f"a catalog of its own. If this is the same machine under a new name, set TASKS_HOST={owner}."
        )
        self.database, self.owner, self.host = database, owner, host

    def __reduce__(self) -> tuple[type["ForeignHost"], tuple[str, str, str]]:
        return type(self), (self.database, self.owner, self.host)


def open_database(url: str, host: str) -> Engine:
    """The engine, its tables made where they lack. Raises ForeignHost."""
    engine = create_engine(url, poolclass=NullPool)
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            # Two that create at once would both find the tables missing.
            connection.execute(text("SELECT pg_advisory_xact_lock(7240731)"))
            metadata.create_all(connection)
        return engine
    file = make_url(url).database
    if not file or file == ":memory:":
        raise ValueError(f"a catalog must be a file or a server, not {url}")
    event.listen(engine, "connect", _configure_sqlite)
    path = Path(file).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # going over to a write-ahead log does not wait its turn
        _prepare_sqlite(engine)
        _claim(engine, str(path), host)
    return engine


def upsert(connection: Connection, table: Table, rows: Iterable[dict[str, Any]], keep: Sequence[str] = ()) -> None:
    """Insert, or update all but the key and the columns in `keep`."""
    given = list(rows)
    if not given:
        return
    statement = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in given[0] if name not in keys and name not in keep}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), given)


def insert(connection: Connection, table: Table) -> "sqlite.Insert | postgresql.Insert":
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def _configure_sqlite(connection: Any, record: Any) -> None:
    # FULL: a commit outlives a power cut, and the nodelist may then say that it was harvested.
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_sqlite(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as connection:
        metadata.create_all(connection)


def _boot() -> str:
    """This run of this kernel; the same in all containers of one machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _claim(engine: Engine, database: str, host: str) -> None:
    """The owner is known by its name, which outlives a reboot, or by its boot, which containers share."""
    mine = {"host": host, "boot": _boot()}
    with engine.begin() as connection:
        noted: dict[str, str] = {row.name: row.value for row in connection.execute(select(meta))}
        if noted.get("host") not in (None, host) and noted.get("boot") != mine["boot"]:
            raise ForeignHost(database, noted["host"], host)
        if noted != mine:
            upsert(connection, meta, [{"name": name, "value": value} for name, value in mine.items()])
