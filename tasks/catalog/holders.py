"""Finds the members that hold a copy of an object."""

from collections.abc import Iterable

from sqlalchemy import select

from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import is_gone, objects
from tasks.database import portions


def holders(catalog: Catalog, pid: str, members: Iterable[str]) -> set[str]:
    """Return those of `members` for which the catalog has the object `pid`, and not as gone."""
    holding: set[str] = set()
    with catalog.engine.connect() as connection:
        for portion in portions(sorted(members)):  # named, since the primary key of `objects` begins with the member
            held = select(objects.c.member).where(objects.c.member.in_(portion), objects.c.pid == pid, ~is_gone())
            holding.update(connection.execute(held).scalars())
    return holding
