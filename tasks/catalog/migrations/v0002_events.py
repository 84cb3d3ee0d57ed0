"""Creates the table of the objects' events, and the counter that numbers the events."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

INSTANT = sa.String(27)
WAITS = sa.text("delivered IS NULL")


def upgrade() -> None:
    op.create_table(
        "object_events",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("member", sa.String(256), nullable=False),
        sa.Column("pid", sa.Text, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        *(sa.Column(name, INSTANT) for name in ("sent", "delivered")),
        sqlite_with_rowid=False,
    )
    for name, columns in (("object_events_by_pid", ["pid", "number"]), ("object_events_by_sent", ["sent", "number"])):
        op.create_index(name, "object_events", columns, sqlite_where=WAITS, postgresql_where=WAITS)
    counter = op.create_table("object_event_counter", sa.Column("last", sa.BigInteger, nullable=False))
    op.bulk_insert(counter, [{"last": 0}])
