"""What a listing says besides dates; passes that read everything anew; kinds of failures; what a member overcounts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("objects", sa.Column("entry", sa.String(16)))
    op.add_column("cursors", sa.Column("anew", sa.BigInteger))
    op.add_column("failures", sa.Column("kind", sa.Text))
    op.add_column("members", sa.Column("surplus", sa.BigInteger))
