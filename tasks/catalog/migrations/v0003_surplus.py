"""By how many objects a member's count is greater than its listing."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("members", sa.Column("surplus", sa.BigInteger))
