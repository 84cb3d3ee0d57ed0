"""Adds columns for hashes of listing entries, passes that fetch everything, kinds of failures, and surplus counts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("objects", sa.Column("entry", sa.String(16)))
    op.add_column("cursors", sa.Column("anew", sa.BigInteger))
    op.add_column("failures", sa.Column("kind", sa.Text))
    op.add_column("members", sa.Column("surplus", sa.BigInteger))
