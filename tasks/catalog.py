"""What was harvested: objects, failures, cursors, and the last run of each member.

A fence guards each member. The first statement of every transaction that writes carries the writer's fence and takes
the member's row with it; a fence smaller than the greatest seen writes nothing. Objects are written in one transaction
with the cursor that stands behind them: what the cursor has passed is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, delete, func, select, update

from tasks import instants
from tasks.objects import SystemMetadata
from tasks.schema import cursors, failures, insert, members, objects, open_database, upsert
from tasks.settings import Settings

AT_ONCE = 500
"""How many pids one query names."""


class StaleFence(Exception):
    """A greater fence has written for this member: whoever holds this one was succeeded."""

    def __init__(self, member: str, fence: int, seen: int) -> None:
        super().__init__(f"{member}: fence {fence} is stale, {seen} was seen")
        self.member, self.fence, self.seen = member, fence, seen

    def __reduce__(self) -> tuple[type["StaleFence"], tuple[str, int, int]]:
        return type(self), (self.member, self.fence, self.seen)


class Wanted(NamedTuple):
    """An object to fetch; `listed` is its date in the listing, None where it was asked for by name."""

    pid: str
    listed: datetime | None


class Fetched(NamedTuple):
    wanted: Wanted
    metadata: SystemMetadata


class Failed(NamedTuple):
    wanted: Wanted
    reason: str
    status: int | None


class Failure(NamedTuple):
    pid: str
    reason: str
    status: int | None
    tries: int
    failed_at: datetime
    next_try: datetime


class Cursor(NamedTuple):
    """Where an unfinished pass stands: all before `position` is stored. `started_from` is what the nodelist said."""

    kind: str
    started_from: datetime
    position: datetime


class Dates(NamedTuple):
    """What the nodelist says of a member; None where it says nothing."""

    last_harvested: datetime | None = None
    last_complete: datetime | None = None


class Summary(NamedTuple):
    objects: int
    failed: int
    ran_at: datetime | None
    outcome: str | None
    error: str | None


class Catalog:
    """Raises schema.ForeignHost on a SQLite file that another host uses."""

    def __init__(self, settings: Settings) -> None:
        self._delay, self._delay_max = settings.failure_delay, settings.failure_delay_max
        self.engine: Engine = open_database(settings.database, settings.host)

    def store(
        self,
        member: str,
        *,
        fence: int,
        fetched: Iterable[Fetched] = (),
        failed: Sequence[Failed] = (),
        cursor: Cursor | None = None,
        now: datetime,
    ) -> list[Failed]:
        """All of it or nothing. Returns the failures that are new. Raises StaleFence."""
        rows = [_object_row(member, one, fence) for one in fetched]
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            upsert(connection, objects, rows)
            for pids in _portions([row["pid"] for row in rows]):
                connection.execute(delete(failures).where(failures.c.member == member, failures.c.pid.in_(pids)))
            tried = self._record_failures(connection, member, failed, now)
            if cursor is not None:
                upsert(connection, cursors, [{"member": member, **cursor._asdict()}])
        return [one for one in failed if one.wanted.pid not in tried]

    def cursor(self, member: str, kind: str) -> Cursor | None:
        query = select(cursors).where(cursors.c.member == member, cursors.c.kind == kind)
        with self.engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Cursor(row.kind, row.started_from, row.position)

    def finish(self, member: str, kind: str, *, fence: int) -> None:
        """A pass is over; the next begins at what the nodelist says."""
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            connection.execute(delete(cursors).where(cursors.c.member == member, cursors.c.kind == kind))

    def ran(self, member: str, *, fence: int, now: datetime, outcome: str, error: str | None = None) -> None:
        """Note how the last run of a member ended."""
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            values = {"ran_at": now, "outcome": outcome, "error": error}
            connection.execute(update(members).where(members.c.member == member).values(values))

    def known(self, member: str, pids: Sequence[str]) -> dict[str, set[datetime]]:
        """For each object that is there, the dates under which it is."""
        found: dict[str, set[datetime]] = {}
        with self.engine.connect() as connection:
            for portion in _portions(pids):
                query = select(objects.c.pid, objects.c.listed, objects.c.modified).where(
                    objects.c.member == member, objects.c.pid.in_(portion)
                )
                found.update({row.pid: {row.listed, row.modified} for row in connection.execute(query)})
        return found

    def failing(self, member: str, pids: Sequence[str]) -> dict[str, tuple[datetime | None, datetime]]:
        """For each object that failed: its date in the listing then, and when it is to be tried again."""
        found: dict[str, tuple[datetime | None, datetime]] = {}
        with self.engine.connect() as connection:
            for portion in _portions(pids):
                query = select(failures.c.pid, failures.c.listed, failures.c.next_try).where(
                    failures.c.member == member, failures.c.pid.in_(portion)
                )
                found.update({row.pid: (row.listed, row.next_try) for row in connection.execute(query)})
        return found

    def due(self, member: str, now: datetime, limit: int) -> list[Wanted]:
        """Failed objects that are to be tried again."""
        query = (
            select(failures.c.pid, failures.c.listed)
            .where(failures.c.member == member, failures.c.next_try <= now)
            .order_by(failures.c.next_try)
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return [Wanted(row.pid, row.listed) for row in connection.execute(query)]

    def newest(self, member: str, before: datetime) -> datetime | None:
        """The date of the newest object stored."""
        query = select(func.max(objects.c.listed)).where(objects.c.member == member, objects.c.listed < before)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def failed(self, member: str, limit: int = 100) -> list[Failure]:
        query = select(failures).where(failures.c.member == member).order_by(failures.c.pid).limit(limit)
        with self.engine.connect() as connection:
            return [Failure(*(getattr(row, name) for name in Failure._fields)) for row in connection.execute(query)]

    def objects(self, member: str, *, after: str = "", limit: int = 100) -> list[Mapping[str, Any]]:
        """By pid, without their documents."""
        columns = [column for column in objects.c if column.name != "document"]
        query = select(*columns).where(objects.c.member == member, objects.c.pid > after)
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query.order_by(objects.c.pid).limit(limit)).mappings()]

    def document(self, member: str, pid: str) -> bytes | None:
        query = select(objects.c.document).where(objects.c.member == member, objects.c.pid == pid)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def summary(self, member: str) -> Summary:
        with self.engine.connect() as connection:
            stored, failed = (
                connection.execute(select(func.count()).select_from(table).where(table.c.member == member)).scalar_one()
                for table in (objects, failures)
            )
            row = connection.execute(select(members).where(members.c.member == member)).first()
        return Summary(stored, failed, *((None,) * 3 if row is None else (row.ran_at, row.outcome, row.error)))

    def _record_failures(
        self, connection: Connection, member: str, failed: Sequence[Failed], now: datetime
    ) -> dict[str, int]:
        """How often each had failed before."""
        tries: dict[str, int] = {}
        for pids in _portions([one.wanted.pid for one in failed]):
            query = select(failures.c.pid, failures.c.tries).where(
                failures.c.member == member, failures.c.pid.in_(pids)
            )
            tries.update({row.pid: row.tries for row in connection.execute(query)})
        rows = []
        for (pid, listed), reason, status in failed:
            number = tries.get(pid, 0) + 1
            # Capped before it is raised: 2 ** 1100 is no float.
            delay = min(self._delay * 2.0 ** min(number - 1, 60), self._delay_max)
            rows.append(
                {"member": member, "pid": pid, "listed": listed, "reason": reason, "status": status, "tries": number}
                | {"failed_at": now, "next_try": now + timedelta(seconds=delay)}
            )
        upsert(connection, failures, rows)
        return tries


def guard(connection: Connection, member: str, fence: int) -> None:
    """To be the first statement of a transaction that writes. Raises StaleFence where a greater fence was seen."""
    statement = insert(connection, members).values(member=member, fence=fence)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["member"], set_={"fence": fence}, where=members.c.fence <= fence
        )
    )
    # Read back: not every driver tells how many rows an upsert touched. The row is ours until the transaction ends.
    seen = connection.execute(select(members.c.fence).where(members.c.member == member)).scalar_one()
    if seen != fence:
        raise StaleFence(member, fence, seen)


def harvest_dates(engine: Engine) -> dict[str, Dates]:
    with engine.connect() as connection:
        rows = connection.execute(select(members.c.member, members.c.last_harvested, members.c.last_complete))
        return {row.member: Dates(row.last_harvested, row.last_complete) for row in rows}


def set_harvest_dates(engine: Engine, changed: Mapping[str, Dates]) -> None:
    """An operator's word: no fence, back as well as forward, and an unfinished pass begins anew."""
    with engine.begin() as connection:
        upsert(connection, members, [{"member": member, **dates._asdict()} for member, dates in changed.items()])
        for portion in _portions(list(changed)):
            connection.execute(delete(cursors).where(cursors.c.member.in_(portion)))


def swap_harvest_dates(engine: Engine, member: str, old: Dates, new: Dates) -> bool:
    """False, and nothing is written, where they are not the old ones. Moved back, an unfinished pass begins anew."""
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
    """Forward only. False, and nothing written, where last_harvested is not `started_from` any more."""
    with engine.begin() as connection:
        guard(connection, member, fence)
        row = connection.execute(select(members).where(members.c.member == member)).one()
        if started_from is not None and (row.last_harvested or instants.NEVER) != started_from:
            return False
        new = Dates(_later(row.last_harvested, dates.last_harvested), _later(row.last_complete, dates.last_complete))
        connection.execute(update(members).where(members.c.member == member).values(new._asdict()))
        return True


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((date for date in (one, other) if date is not None), default=None)


def _object_row(member: str, one: Fetched, fence: int) -> dict[str, Any]:
    listed = one.wanted.listed or one.metadata.modified
    return {"member": member, "listed": listed, "fence": fence, **one.metadata._asdict()}


def _portions(pids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (pids[start : start + AT_ONCE] for start in range(0, len(pids), AT_ONCE))
