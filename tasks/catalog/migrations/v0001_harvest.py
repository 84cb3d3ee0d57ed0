"""Creates the tables of the harvest: members, objects, cursors, failures, sightings and gone objects."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INSTANT, MEMBER = sa.String(27), sa.String(256)


def upgrade() -> None:
    op.create_table(
        "members",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("ran_at", INSTANT),
        *(sa.Column(name, sa.Text) for name in ("outcome", "error")),
        *(sa.Column(name, INSTANT) for name in ("silent_since", "alone_until")),
    )
    _create_objects()
    op.create_table(
        "cursors",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("started_from", "position")),
        sa.Column("began", INSTANT),
    )
    op.create_table(
        "failures",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("pid", sa.Text, primary_key=True),
        sa.Column("listed", INSTANT),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("tries", sa.Integer, nullable=False),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("failed_at", "next_try")),
    )
    op.create_index("failures_by_next_try", "failures", ["member", "next_try"])
    for name, column in (("sightings", "seen"), ("gone", "since")):  # not columns of `objects`, whose rows are large
        op.create_table(
            name,
            sa.Column("member", MEMBER, primary_key=True),
            sa.Column("pid", sa.Text, primary_key=True),
            sa.Column(column, INSTANT, nullable=False),
            sqlite_with_rowid=False,
        )


def _create_objects() -> None:
    op.create_table(
        "objects",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("pid", sa.Text, primary_key=True),
        *(sa.Column(name, INSTANT, nullable=False) for name in ("listed", "modified")),
        sa.Column("format_id", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("checksum", "algorithm")),
        sa.Column("serial_version", sa.BigInteger),
        sa.Column("archived", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("obsoletes", "obsoleted_by")),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
    )
    op.create_index("objects_by_date", "objects", ["member", "listed"])
