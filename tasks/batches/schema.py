"""The tables of items and events, and those that components need, as the newest migration leaves them."""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from tasks.database import Group, Instant

BATCHES = Group("batches", Path(__file__).parent / "migrations")

NAME = String(256)
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite generates numbers for columns of the type INTEGER only

metadata = MetaData()

batches = Table(
    "batches",
    metadata,
    Column("batch", NAME, primary_key=True),
    Column(
        "changes", BigInteger, nullable=False
    ),  # a transaction that changes round trips of the batch increments this first, which locks the batch
)

items = Table(
    "items",
    metadata,
    Column("number", NUMBER, primary_key=True),  # counts the items in the order in which they were added
    Column("item", NAME, nullable=False, unique=True),
    Column("batch", NAME, nullable=False),
    Column("round_trip", Integer),
    Column("type", NAME, nullable=False),
    Column("rank", Integer, nullable=False),  # the priority, 1 to 9; 10: none
    Column("directory", Text),
    Column("registered", Instant, nullable=False),
    Column("modified", Instant, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("profile", BigInteger),  # the number of the item's profile in the table `profiles`
    Index("items_by_rank", "rank", "number"),
    Index("items_by_batch", "batch", "round_trip"),
    Index("items_by_profile", "profile", "rank", "number"),
    sqlite_autoincrement=True,
)

profiles = Table(
    "profiles",
    metadata,
    Column("number", NUMBER, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),  # SHA-256 of `profile`, for the unique index
    Column("profile", Text, nullable=False),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    Column("number", NUMBER, primary_key=True),  # counts all events: an item's newest event of a type has the greatest
    Column("id", String(36), nullable=False, unique=True),
    Column("item", NAME, nullable=False),
    Column("type", NAME, nullable=False),
    Column("success", Boolean, nullable=False),
    Column("component", NAME, nullable=False),
    Column("version", NAME, nullable=False),
    Column("attempt", String(600), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("revision_read", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),  # revision_read, plus 1 if only the work itself changed the item
    Column("started", Instant, nullable=False),
    Column("ended", Instant, nullable=False),
    Column("report", Text, nullable=False),
    Column("removed", Instant),  # when a repair removed the event; NULL: the event counts
    Column("removed_by", Text),
    Column("removed_why", Text),
    UniqueConstraint("component", "item", "attempt"),
    Index("events_of_items", "item", "number"),
    sqlite_autoincrement=True,
)

fences = Table(
    "fences",
    metadata,
    Column("component", NAME, primary_key=True),
    Column("item", NAME, primary_key=True),
    Column("fence", BigInteger, nullable=False),  # the greatest fence with which the component began work on the item
    Column("open", Boolean, nullable=False),  # False: after a repair, no event with this fence is stored
    Index("fences_of_items", "item"),
)

orphans = Table(
    "orphans",
    metadata,
    Column("component", NAME, primary_key=True),
    Column("item", NAME, primary_key=True),
    Column("attempt", String(600), primary_key=True),
    Column("version", NAME, nullable=False),
    Column("type", NAME, nullable=False),
    Column("success", Boolean, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("started", Instant, nullable=False),
    Column("ended", Instant, nullable=False),
    Column("report", Text, nullable=False),
)

components = Table(
    "components",
    metadata,
    Column("component", NAME, primary_key=True),
    Column("ran", Instant),
    Column("job", String(600)),
    Column("submitted", Integer),
)
