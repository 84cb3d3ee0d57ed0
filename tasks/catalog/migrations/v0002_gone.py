"""Which objects a member still lists, which it has deleted, and the beginning of an unfinished pass.

Apart from the objects, whose rows are large: a complete pass writes a sighting for each of them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

INSTANT, MEMBER = sa.String(27), sa.String(256)


def upgrade() -> None:
    op.create_table(
        "sightings",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("pid", sa.Text, primary_key=True),
        sa.Column("seen", INSTANT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "gone",
        sa.Column("member", MEMBER, primary_key=True),
        sa.Column("pid", sa.Text, primary_key=True),
        sa.Column("since", INSTANT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("cursors", sa.Column("began", INSTANT))
