"""The tables, and the one way to open their database.

SQLite (write-ahead log) serves one host, since its readers and writers share memory. PostgreSQL serves any number.
Each use opens a connection and closes it again, so that a fork inherits none.
"""

import fcntl
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
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
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from sqlalchemy.types import TypeDecorator

from tasks.member_node import instants

Value = str | int | bool | bytes | datetime | None
"""The value of a column."""

AT_ONCE = 500
"""How many keys one query names."""

metadata = MetaData()


class Instant(TypeDecorator[datetime]):
    """A column of instants, kept as text: exact, ordered and readable in every database."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else instants.full(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else instants.parse(value)


members = Table(
    "members",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("fence", BigInteger, nullable=False, server_default="0"),  # the greatest fence that ever wrote
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
    Column("listed", Instant, nullable=False),  # the date in the listing: a page that repeats it is no news
    Column("modified", Instant, nullable=False),  # the date in the system metadata
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
    """The SQLite catalog belongs to another host."""

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
    """The engine, with all tables made. Raises ForeignHost."""
    engine = create_engine(url, poolclass=NullPool)
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            # Without this lock, two processes could both find the tables missing and both create them.
            connection.execute(text("SELECT pg_advisory_xact_lock(7240731)"))
            metadata.create_all(connection)
        return engine
    file = make_url(url).database
    if not file or file == ":memory:":
        raise ValueError(f"the catalog must be a file or a server, not {url}")
    event.listen(engine, "connect", _configure_sqlite)
    path = Path(file).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # SQLite does not wait for a lock when it changes to a write-ahead log
        _prepare_sqlite(engine)
        _claim(engine, str(path), host)
    return engine


def upsert(connection: Connection, table: Table, rows: Iterable[Mapping[str, Value]], keep: Sequence[str] = ()) -> None:
    """Insert rows. Where a key exists, update all columns except those in `keep`."""
    given = list(rows)
    if not given:
        return
    statement = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in given[0] if name not in keys and name not in keep}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), given)


def insert(connection: Connection, table: Table) -> "sqlite.Insert | postgresql.Insert":
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def portions(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    """The keys in parts that one query can name."""
    return (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))


def _configure_sqlite(connection: SqliteConnection, record: ConnectionPoolEntry) -> None:
    # FULL: a commit outlives a power cut. Only then may the nodelist say that its objects were harvested.
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_sqlite(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as connection:
        metadata.create_all(connection)


def _boot() -> str:
    """The id of this run of the kernel. All containers of one machine have the same."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _claim(engine: Engine, database: str, host: str) -> None:
    """Claim the database for this host. The name of a host outlives a reboot; its containers share the boot id."""
    mine = {"host": host, "boot": _boot()}
    with engine.begin() as connection:
        noted: dict[str, str] = {row.name: row.value for row in connection.execute(select(meta))}
        if noted.get("host") not in (None, host) and noted.get("boot") != mine["boot"]:
            raise ForeignHost(database, noted["host"], host)
        if noted != mine:
            upsert(connection, meta, [{"name": name, "value": value} for name, value in mine.items()])
