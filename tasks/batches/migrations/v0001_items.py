"""Creates the tables of items, events and profiles, and those of the components' fences, orphans and last runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INSTANT, NAME, ATTEMPT = sa.String(27), sa.String(256), sa.String(600)
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("batch", NAME, primary_key=True),
        sa.Column("changes", sa.BigInteger, nullable=False),
    )
    _create_items()
    _create_events()
    op.create_table(
        "fences",
        *(sa.Column(name, NAME, primary_key=True) for name in ("component", "item")),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
    )
    op.create_index("fences_of_items", "fences", ["item"])
    op.create_table(
        "orphans",
        *(sa.Column(name, NAME, primary_key=True) for name in ("component", "item")),
        sa.Column("attempt", ATTEMPT, primary_key=True),
        *(sa.Column(name, NAME, nullable=False) for name in ("version", "type")),
        sa.Column("success", sa.Boolean, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("started", "ended")),
        sa.Column("report", sa.Text, nullable=False),
    )
    op.create_table(
        "components",
        sa.Column("component", NAME, primary_key=True),
        sa.Column("ran", INSTANT),
        sa.Column("job", ATTEMPT),
        sa.Column("submitted", sa.Integer),
    )


def _create_items() -> None:
    op.create_table(
        "items",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("item", NAME, nullable=False, unique=True),
        sa.Column("batch", NAME, nullable=False),
        sa.Column("round_trip", sa.Integer),
        sa.Column("type", NAME, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("directory", sa.Text),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("registered", "modified")),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("profile", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("items_by_rank", "items", ["rank", "number"])
    op.create_index("items_by_batch", "items", ["batch", "round_trip"])
    op.create_index("items_by_profile", "items", ["profile", "rank", "number"])
    op.create_table(
        "profiles",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("profile", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        *(sa.Column(name, NAME, nullable=False) for name in ("item", "type")),
        sa.Column("success", sa.Boolean, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in ("component", "version")),
        sa.Column("attempt", ATTEMPT, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("fence", "revision_read", "revision")),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("started", "ended")),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("removed", INSTANT),
        *(sa.Column(name, sa.Text) for name in ("removed_by", "removed_why")),
        sa.UniqueConstraint("component", "item", "attempt"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_items", "events", ["item", "number"])
