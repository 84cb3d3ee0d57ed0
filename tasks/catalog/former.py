"""Finds and purges former members: those with objects in the catalog that are no longer in the nodelist."""

from collections.abc import Callable, Collection

from sqlalchemy import delete, or_, select

from tasks import instants
from tasks.catalog.catalog import Catalog, guard
from tasks.catalog.events import Kind, record
from tasks.catalog.schema import cursors, failures, gone, is_gone, members, objects, sightings
from tasks.database.columns import AT_ONCE


def former(catalog: Catalog, listed: Collection[str]) -> list[str]:
    """Return the members that have objects or failures in the catalog, except those in `listed` (the nodelist)."""
    some = (select(table.c.pid).where(table.c.member == members.c.member).exists() for table in (objects, failures))
    with catalog.engine.connect() as connection:
        kept = connection.execute(select(members.c.member).where(or_(*some)).order_by(members.c.member)).scalars()
        return [member for member in kept if member not in listed]


def purge(catalog: Catalog, member: str, *, fence: int, check: Callable[[], object]) -> int:
    """Delete all rows of a member except its fence, in several transactions. Returns how many objects were deleted.

    Deletes the cursors first: if the rest is interrupted and the member comes back to the nodelist, a run reads the
    whole listing. `check`: called before each transaction; raises if the job has lost its lease. Raises Superseded.
    """
    some = select(objects.c.pid).where(objects.c.member == member).limit(AT_ONCE)
    count, portion = 0, None
    while portion != 0:
        check()
        with catalog.engine.begin() as connection:
            guard(connection, member, fence)
            for table in (cursors, failures, sightings) if portion is None else ():
                connection.execute(delete(table).where(table.c.member == member))
            pids = list(connection.execute(some).scalars())
            had = select(objects.c.pid).where(objects.c.member == member, objects.c.pid.in_(pids), ~is_gone())
            kinds: dict[str, Kind] = dict.fromkeys(connection.execute(had).scalars(), "gone")
            for table in (gone, objects):
                connection.execute(delete(table).where(table.c.member == member, table.c.pid.in_(pids)))
            record(connection, member, kinds, instants.now())
        portion = len(pids)
        count += portion
    return count
