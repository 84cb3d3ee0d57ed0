"""Until when each member was harvested, in SQL: there a fence guards the dates within one transaction.

Only the XML nodelist keeps its dates here. A replicated nodelist has them in its document.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine, String, delete, select, type_coerce, update

from tasks import instants
from tasks.catalog.catalog import guard
from tasks.catalog.schema import cursors, members
from tasks.database import insert, portions, upsert
from tasks.nodelist.protocol import Dates

Texts = tuple[str | None, str | None]


class Rows:
    """All members' dates. A read parses only what changed since the one before."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: tuple[dict[str, Texts], dict[str, Dates]] = {}, {}

    def read(self) -> dict[str, Dates]:
        names = [type_coerce(members.c[name], String).label(name) for name in Dates._fields]
        with self._engine.connect() as connection:
            found = {row[0]: (row[1], row[2]) for row in connection.execute(select(members.c.member, *names))}
        before, known = self._last
        dates = {one: known[one] if before.get(one) == texts else _parsed(texts) for one, texts in found.items()}
        self._last = found, dates
        return dates


def _parsed(texts: Texts) -> Dates:
    return Dates(*(instants.parse(text) if text else None for text in texts))


def set_harvest_dates(engine: Engine, changed: Mapping[str, Dates]) -> None:
    """Set dates for an operator: without a fence, back as well as forward. Unfinished passes begin anew."""
    with engine.begin() as connection:
        upsert(connection, members, [{"member": member, **dates._asdict()} for member, dates in changed.items()])
        for portion in portions(list(changed)):
            connection.execute(delete(cursors).where(cursors.c.member.in_(portion)))


def swap_harvest_dates(engine: Engine, moves: Mapping[str, tuple[Dates | None, Dates]]) -> set[str]:
    """Set new dates where the old ones still stand (None: whatever stands), all in one transaction.

    Returns the members that have other dates by now: theirs stay. A date that goes back restarts the pass.
    """
    refused: set[str] = set()
    with engine.begin() as connection:
        for names in portions(sorted(moves)):
            connection.execute(
                insert(connection, members).on_conflict_do_nothing(), [{"member": member} for member in names]
            )
            standing = select(members).where(members.c.member.in_(names)).with_for_update()
            stands = {row.member: Dates(row.last_harvested, row.last_complete) for row in connection.execute(standing)}
            wrong = {one for one in names if moves[one][0] not in (None, stands[one])}
            moved = [one for one in names if one not in wrong and moves[one][1] != stands[one]]
            back = [one for one in moved if moves[one][0] is None or _began(moves[one][1]) < _began(stands[one])]
            upsert(connection, members, [{"member": one, **moves[one][1]._asdict()} for one in moved])
            connection.execute(delete(cursors).where(cursors.c.member.in_(back)))
            refused |= wrong
    return refused


def _began(dates: Dates) -> datetime:
    return dates.last_harvested or instants.NEVER


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
