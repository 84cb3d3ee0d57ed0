"""Profiles of items: pages of items are found by them. The items that are there are given theirs."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

AT_ONCE = 5_000

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

READ = """
SELECT i.number, i.type, e.type,
    CASE WHEN e.success IS TRUE THEN 1 ELSE 0 END, CASE WHEN e.revision < i.revision THEN 1 ELSE 0 END
FROM items i LEFT JOIN events e ON e.item = i.item AND e.removed IS NULL ORDER BY i.number, e.number
"""


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("profile", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    for name in ("profile", "counted"):
        op.add_column("items", sa.Column(name, sa.BigInteger))
    _mark_events()
    _count_items()
    op.create_index("items_by_profile", "items", ["profile", "rank", "number"])
    op.create_index(
        "items_uncounted",
        "items",
        ["number"],
        sqlite_where=sa.text("counted IS NOT revision"),
        postgresql_where=sa.text("counted IS DISTINCT FROM revision"),
    )
    unmarked = sa.text("counted IS NULL")
    op.create_index("events_uncounted", "events", ["item"], sqlite_where=unmarked, postgresql_where=unmarked)


def _mark_events() -> None:
    """Those that are there, and none that a process of the version before will add."""
    if op.get_bind().dialect.name == "sqlite":
        op.add_column("events", sa.Column("counted", sa.Boolean))
        op.execute("UPDATE events SET counted = TRUE")
    else:  # without writing each row anew
        op.add_column("events", sa.Column("counted", sa.Boolean, server_default=sa.true()))
        op.alter_column("events", "counted", server_default=None)


def _count_items() -> None:
    connection = op.get_bind()
    profile_of = dict(_profiles(connection.execute(sa.text(READ), execution_options={"yield_per": AT_ONCE})))
    digests = {hashlib.sha256(one.encode()).hexdigest(): one for one in profile_of.values()}
    table = sa.table("profiles", sa.column("number"), sa.column("digest"), sa.column("profile"))
    if digests:
        op.bulk_insert(table, [{"digest": digest, "profile": one} for digest, one in digests.items()])
    numbers = {row.profile: row.number for row in connection.execute(sa.select(table))}
    give = sa.text("UPDATE items SET profile = :profile, counted = revision WHERE number = :number")
    given = [{"number": item, "profile": numbers[one]} for item, one in profile_of.items()]
    for start in range(0, len(given), AT_ONCE):
        connection.execute(give, given[start : start + AT_ONCE])


def _profiles(rows: Iterable[tuple[str, str, str | None, int, int]]) -> Iterator[tuple[int, str]]:
    """For each item its profile, as JSON: of each type of event the newest, which comes last."""
    for (item, kind), of_item in groupby(rows, key=lambda row: (row[0], row[1])):
        newest = {
            event: [event, bool(success), bool(old)] for _, _, event, success, old in of_item if event is not None
        }
        yield item, json.dumps([kind, [newest[event] for event in sorted(newest)]])
