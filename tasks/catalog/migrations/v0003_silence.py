"""Since when a member has not answered, and until when its ticks leave it alone."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name in ("silent_since", "alone_until"):
        op.add_column("members", sa.Column(name, sa.String(27)))
