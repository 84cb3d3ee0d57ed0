"""Finds the members that hold an object."""

from collections.abc import Iterable

from sqlalchemy import select

from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import is_gone, objects
from tasks.database import portions


def holders(catalog: Catalog, pid: str, members: Iterable[str]) -> set[str]:
    """Those of the members whose object this is, in the catalog, and not gone."""
    holding: set[str] = set()
    with catalog.engine.connect() as connection:
        for portion in portions(sorted(members)):  # the key begins with the member: a look-up for each
            held = select(objects.c.member).where(objects.c.member.in_(portion), objects.c.pid == pid, ~is_gone())
            holding.update(connection.execute(held).scalars())
    return holding
