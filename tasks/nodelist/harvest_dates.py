"""Until when each member was harvested, in SQL: there a fence guards the dates within one transaction.

Only the XML nodelist keeps its dates here. A replicated nodelist has them in its document.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine, delete, select, update

from tasks.catalog.catalog import guard
from tasks.catalog.schema import cursors, members
from tasks.database import insert, portions, upsert
from tasks.member_node import instants
from tasks.nodelist.protocol import Dates


def harvest_dates(engine: Engine) -> dict[str, Dates]:
    with engine.connect() as connection:
        rows = connection.execute(select(members.c.member, members.c.last_harvested, members.c.last_complete))
        return {row.member: Dates(row.last_harvested, row.last_complete) for row in rows}


def set_harvest_dates(engine: Engine, changed: Mapping[str, Dates]) -> None:
    """Set dates for an operator: without a fence, back as well as forward. Unfinished passes begin anew."""
    with engine.begin() as connection:
        upsert(connection, members, [{"member": member, **dates._asdict()} for member, dates in changed.items()])
        for portion in portions(list(changed)):
            connection.execute(delete(cursors).where(cursors.c.member.in_(portion)))


def swap_harvest_dates(engine: Engine, member: str, old: Dates, new: Dates) -> bool:
    """Set new dates where the old ones still stand; otherwise return False. A date that goes back restarts the pass."""
    with engine.begin() as connection:
        row = insert(connection, members).values(member=member).on_conflict_do_nothing()
        connection.execute(row)
        as_read = [members.c[name].is_not_distinct_from(date) for name, date in old._asdict().items()]
        moved = update(members).where(members.c.member == member, *as_read).values(new._asdict())
        if connection.execute(moved).rowcount == 0:
            return False
        if (new.last_harvested or instants.NEVER) < (old.last_harvested or instants.NEVER):
            connection.execute(delete(cursors).where(cursors.c.member == member))
        return True


def record_harvest(
    engine: Engine, member: str, dates: Dates, *, fence: int, started_from: datetime | None = None
) -> bool:
    """Move dates forward. False, and nothing is written, where last_harvested is no longer `started_from`."""
    with engine.begin() as connection:
        guard(connection, member, fence)
        row = connection.execute(select(members).where(members.c.member == member)).one()
        if started_from is not None and (row.last_harvested or instants.NEVER) != started_from:
            return False
        new = Dates(row.last_harvested, row.last_complete).later(dates)
        connection.execute(update(members).where(members.c.member == member).values(new._asdict()))
        return True
