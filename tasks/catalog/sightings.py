"""Sightings: which objects each complete pass saw in a member's listing, and which objects are gone.

The instant at which a pass began identifies it, also after an interruption. Objects stay in the catalog.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, Table, delete, exists, func, or_, select, update

from tasks.catalog.catalog import guard, storable
from tasks.catalog.events import record
from tasks.catalog.schema import failures, gone, is_gone, members, objects, sightings
from tasks.database import Value, portions, upsert


class Sightings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def saw(self, member: str, pids: Collection[str], began: datetime, *, fence: int) -> None:
        """Note that the pass has seen these objects in the member's listing. Raises Superseded."""
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            _note(connection, member, pids, began)

    def seen(self, member: str, began: datetime) -> int:
        """The number of objects that the pass has seen."""
        query = select(func.count()).where(sightings.c.member == member, sightings.c.seen == began)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def surplus(self, member: str, surplus: int, *, fence: int) -> int | None:
        """Note by how many objects the member counts more than the pass has seen. Returns what the last pass noted."""
        of_member = members.c.member == member
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            before: int | None = connection.execute(select(members.c.surplus).where(of_member)).scalar()
            connection.execute(update(members).where(of_member).values(surplus=surplus))
        return before

    def witnesses(self, member: str, began: datetime, limit: int) -> list[str]:
        """Some objects that are stored, and that the pass has seen."""
        failing = exists().where(failures.c.member == objects.c.member, failures.c.pid == objects.c.pid)
        query = select(objects.c.pid).join(sightings, _same(sightings)).where(objects.c.member == member, ~failing)
        with self._engine.connect() as connection:
            return list(connection.execute(query.where(sightings.c.seen == began).limit(limit)).scalars())

    def unseen(self, member: str, began: datetime, limit: int) -> list[str]:
        """Objects, stored or failed, that the pass has not seen, the longest unseen first."""
        last = sightings.c.seen
        not_seen = or_(last.is_(None), last < began)
        stored = select(objects.c.pid).outerjoin(sightings, _same(sightings)).where(objects.c.member == member)
        stored = stored.where(not_seen, ~is_gone()).order_by(last.nulls_first(), objects.c.pid)
        both = (failures.c.member == sightings.c.member) & (failures.c.pid == sightings.c.pid)
        failed = select(failures.c.pid).outerjoin(sightings, both).where(failures.c.member == member, not_seen)
        with self._engine.connect() as connection:
            pids = [*connection.execute(failed.limit(limit)).scalars()]
            return list(dict.fromkeys([*pids, *connection.execute(stored.limit(limit)).scalars()]))[:limit]

    def judge(
        self,
        member: str,
        *,
        missing: Sequence[str],
        asked: Sequence[str],
        began: datetime,
        fence: int,
        now: datetime,
    ) -> None:
        """Note that the objects in `missing` are gone, and all in `asked` as seen by the pass. Raises Superseded."""
        with self._engine.begin() as connection:
            guard(connection, member, fence)
            lost: list[str] = []
            for pids in portions(missing):
                had = select(objects.c.pid).where(objects.c.member == member, objects.c.pid.in_(pids), ~is_gone())
                lost += connection.execute(had).scalars()
                connection.execute(delete(failures).where(failures.c.member == member, failures.c.pid.in_(pids)))
            upsert(connection, gone, [{"member": member, "pid": pid, "since": now} for pid in lost])
            _note(connection, member, asked, began)
            record(connection, member, dict.fromkeys(lost, "gone"), now)

    def gone(self, member: str, *, after: str = "", limit: int = 100) -> list[Mapping[str, Value]]:
        """The stored objects that are gone, in the order of their pids, with `gone_since`."""
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
    """A join condition: the table's row of the same object."""
    return (table.c.member == objects.c.member) & (table.c.pid == objects.c.pid)
