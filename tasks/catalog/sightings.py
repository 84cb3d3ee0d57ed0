"""Sightings: which objects a complete pass has found in a member's listing, and which objects are gone from the member.

The instant at which a pass began identifies the pass, also after an interruption. Objects that are gone stay in the
catalog.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, Table, delete, exists, func, or_, select, update

from tasks.catalog.catalog import guard, storable
from tasks.catalog.events import record
from tasks.catalog.schema import failures, gone, is_gone, members, objects, sightings
from tasks.database import Value, portions, upsert


class Sightings:
    """Reads and writes the sightings and the gone objects in the catalog's database.

    `began`, in all methods: when the complete pass began, which identifies it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def saw(self, member: str, pids: Collection[str], began: datetime, *, fence: int) -> None:
        """Store that the pass has found these objects in the member's listing. Raises Superseded."""
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            _note(connection, member, pids, began)

    def seen(self, member: str, began: datetime) -> int:
        """Return the number of objects that the pass has found in the member's listing."""
        query = select(func.count()).where(sightings.c.member == member, sightings.c.seen == began)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def surplus(self, member: str, surplus: int, *, fence: int) -> int | None:
        """Store how many more objects the member says it has than the pass has found in its listing.

        Returns the number that the previous pass stored, or None. Raises Superseded.
        """
        of_member = members.c.member == member
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            before: int | None = connection.execute(select(members.c.surplus).where(of_member)).scalar()
            connection.execute(update(members).where(of_member).values(surplus=surplus))
        return before

    def samples(self, member: str, began: datetime, limit: int) -> list[str]:
        """Return at most `limit` stored objects that the pass has found listed and whose last fetch did not fail."""
        failing = exists().where(failures.c.member == objects.c.member, failures.c.pid == objects.c.pid)
        query = select(objects.c.pid).join(sightings, _same(sightings)).where(objects.c.member == member, ~failing)
        with self._engine.connect() as connection:
            return list(connection.execute(query.where(sightings.c.seen == began).limit(limit)).scalars())

    def unseen(self, member: str, began: datetime, limit: int) -> list[str]:
        """Return at most `limit` stored or failed objects that the pass has not found in the listing.

        Failed objects come first, then those that no pass ever found, then those found longest ago.
        """
        last = sightings.c.seen
        not_seen = or_(last.is_(None), last < began)
        stored = select(objects.c.pid).outerjoin(sightings, _same(sightings)).where(objects.c.member == member)
        stored = stored.where(not_seen, ~is_gone()).order_by(last.nulls_first(), objects.c.pid)
        both = (failures.c.member == sightings.c.member) & (failures.c.pid == sightings.c.pid)
        failed = select(failures.c.pid).outerjoin(sightings, both).where(failures.c.member == member, not_seen)
        with self._engine.connect() as connection:
            pids = [*connection.execute(failed.limit(limit)).scalars()]
            return list(dict.fromkeys([*pids, *connection.execute(stored.limit(limit)).scalars()]))[:limit]

    def note_checked(
        self,
        member: str,
        *,
        missing: Sequence[str],
        checked: Sequence[str],
        began: datetime,
        fence: int,
        now: datetime,
    ) -> None:
        """Store that the objects in `missing` are gone, with their events, and that the pass has checked `checked`.

        Checked objects count as found by the pass, so that the pass does not check them twice. Raises Superseded.
        """
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            lost: list[str] = []
            for pids in portions(missing):
                had = select(objects.c.pid).where(objects.c.member == member, objects.c.pid.in_(pids), ~is_gone())
                lost += connection.execute(had).scalars()
                connection.execute(delete(failures).where(failures.c.member == member, failures.c.pid.in_(pids)))
            upsert(connection, gone, [{"member": member, "pid": pid, "since": now} for pid in lost])
            _note(connection, member, checked, began)
            record(connection, member, dict.fromkeys(lost, "gone"), now)

    def gone(self, member: str, *, after: str = "", limit: int = 100) -> list[Mapping[str, Value]]:
        """Read at most `limit` objects of a member that are gone, with `gone_since`, in the order of their pids.

        `after`: the last pid of the previous page; "" for the first page.
        """
        columns = [column for column in objects.c if column.name != "document"]
        query = select(*columns, gone.c.since.label("gone_since")).join(gone, _same(gone))
        query = query.where(gone.c.member == member, gone.c.pid > after).order_by(gone.c.pid).limit(limit)
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def _note(connection: Connection, member: str, pids: Collection[str], began: datetime) -> None:
    upsert(
        connection, sightings, [{"member": member, "pid": pid, "seen": began} for pid in pids if storable(member, pid)]
    )


def _same(table: Table) -> ColumnElement[bool]:
    """Build a join condition: the row of `table` and the row of `objects` are of the same object."""
    return (table.c.member == objects.c.member) & (table.c.pid == objects.c.pid)
