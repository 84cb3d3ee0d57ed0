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
    Column("fence", BigInteger, nullable=False, server_default="0"),  # the greatest fence that ever wrote
    Column("ran_at", Instant),
    Column("outcome", Text),
    Column("error", Text),
    Column("silent_since", Instant),  # set while the member does not answer: ticks do nothing until alone_until
    Column("alone_until", Instant),
    Column("surplus", BigInteger),  # of the objects that the member counts over those that its last complete pass saw
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
    Column("entry", String(16)),  # of the listing: tasks/member_node/objects.py; none of one asked for by its pid
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
    Column("anew", BigInteger),  # of a pass that fetches everything: its first fence
)

failures = Table(
    "failures",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("listed", Instant),
    Column("reason", Text, nullable=False),
    Column("kind", Text),  # tasks/catalog/kinds.py
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
    Column("seen", Instant, nullable=False),  # the beginning of the last complete pass that saw the object
    sqlite_with_rowid=False,
)

gone = Table(
    "gone",
    metadata,
    Column("member", String(256), primary_key=True),
    Column("pid", Text, primary_key=True),
    Column("since", Instant, nullable=False),  # when the member first answered that it does not have it
    sqlite_with_rowid=False,
)

_WAITS = text("delivered IS NULL")

events = Table(
    "object_events",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", String(36), nullable=False),  # also of the job that delivers it
    Column("member", String(256), nullable=False),
    Column("pid", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("at", Instant, nullable=False),
    Column("sent", Instant),  # when it was last submitted
    Column("delivered", Instant),
    Index("object_events_by_pid", "pid", "number", sqlite_where=_WAITS, postgresql_where=_WAITS),
    Index("object_events_by_sent", "sent", "number", sqlite_where=_WAITS, postgresql_where=_WAITS),
    sqlite_with_rowid=False,
)

event_counter = Table("object_event_counter", metadata, Column("last", BigInteger, nullable=False))


def is_gone() -> Exists:
    """An SQL condition: the object of the enclosing query is gone."""
    return exists().where(gone.c.member == objects.c.member, gone.c.pid == objects.c.pid)
