"""The tables of the catalog, as its newest migration leaves them."""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Exists,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    exists,
    text,
)

from tasks.database import Group, Instant

CATALOG = Group("catalog", Path(__file__).parent / "migrations")

metadata = MetaData()

members = Table(
    "members",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("fence", BigInteger, nullable=False, server_default="0"),  # greatest fence that wrote for the member
    Column("ran_at", Instant),
    Column("outcome", Text),
    Column("error", Text),
    Column("silent_since", Instant),  # since when the member has not answered, or NULL
    Column("alone_until", Instant),  # ticks start no run until then, since the member does not answer; or NULL
    Column("surplus", BigInteger),  # how many more objects the member counts than the last complete pass found listed
)

objects = Table(
    "objects",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("listed", Instant, nullable=False),  # the object's date in the member's listing
    Column("modified", Instant, nullable=False),  # the object's date in its system metadata
    Column("format_id", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("algorithm", Text, nullable=False),
    Column("serial_version", BigInteger),
    Column("archived", Boolean, nullable=False),
    Column("obsoletes", Text),
    Column("obsoleted_by", Text),
    Column("document", LargeBinary, nullable=False),  # the system metadata as received
    Column("fence", BigInteger, nullable=False),  # the fence of the run that stored the object last
    Column("entry", String(16)),  # hash of its entry in the listing (member_node/objects.py); NULL: requested by pid
    Index("objects_by_date", "member", "listed"),
)

cursors = Table(
    "cursors",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("started_from", Instant, nullable=False),
    Column("position", Instant, nullable=False),
    Column("began", Instant),
    Column("anew", BigInteger),  # fence of the first run of a pass that fetches all objects; NULL: only changed ones
)

failures = Table(
    "failures",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("listed", Instant),
    Column("reason", Text, nullable=False),
    Column("kind", Text),  # `reason` without what differs between objects (tasks/catalog/kinds.py)
    Column("status", Integer),
    Column("tries", Integer, nullable=False),
    Column("failed_at", Instant, nullable=False),
    Column("next_try", Instant, nullable=False),
    Index("failures_by_next_try", "member", "next_try"),
)

sightings = Table(
    "sightings",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("seen", Instant, nullable=False),  # when the last complete pass that found the object listed began
    sqlite_with_rowid=False,
)

gone = Table(
    "gone",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("since", Instant, nullable=False),  # when the member answered 404 or 410 for the object
    sqlite_with_rowid=False,
)

_WAITS = text("delivered IS NULL")

events = Table(
    "object_events",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", String(36), nullable=False),  # also the id of the job that delivers the event
    Column("member", String(256), nullable=False),
    Column("pid", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("at", Instant, nullable=False),
    Column("sent", Instant),  # when a job for the event was last submitted
    Column("delivered", Instant),
    Index("object_events_by_pid", "pid", "number", sqlite_where=_WAITS, postgresql_where=_WAITS),
    Index("object_events_by_sent", "sent", "number", sqlite_where=_WAITS, postgresql_where=_WAITS),
    sqlite_with_rowid=False,
)

event_counter = Table("object_event_counter", metadata, Column("last", BigInteger, nullable=False))


def is_gone() -> Exists:
    """Build an SQL condition: the row of `objects` in the enclosing query is of an object that is gone."""
    return exists().where(gone.c.member == objects.c.member, gone.c.pid == objects.c.pid)
