"""The harvest in SQL: objects, failures, cursors, and the last run of each member.

A fence guards each member. The first statement of every writing transaction locks the member's row and checks the
writer's fence: a writer with a smaller fence than the greatest one seen writes nothing. A transaction that moves the
cursor also writes the objects before it. So every object before the cursor is stored. A transaction that changes an
object writes its event at its end (tasks/catalog/events.py).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Row, RowMapping, Table, delete, exists, func, select, update

from tasks.catalog.events import made_by, record
from tasks.catalog.kinds import kind_of
from tasks.catalog.schema import CATALOG, cursors, failures, gone, is_gone, members, objects
from tasks.database import Value, insert, open_database, portions, upsert
from tasks.member_node.objects import SystemMetadata, entry_of
from tasks.settings import Settings

EXAMPLE = 100  # characters of a pid in a few words
LONGEST_PID = 800
"""In characters, as the federation's schema has it. PostgreSQL keeps no much longer key."""

_KNOWN = ("pid", "listed", "modified", "entry", "fence", "format_id", "size", "checksum", "algorithm")

logger = logging.getLogger(__name__)


class Superseded(Exception):
    """A greater fence has written for this member: another job has taken over."""

    def __init__(self, member: str, fence: int, seen: int) -> None:
        super().__init__(f"{member}: fence {fence} is stale, {seen} was seen")
        self.member, self.fence, self.seen = member, fence, seen

    def __reduce__(self) -> tuple[type["Superseded"], tuple[str, int, int]]:
        return type(self), (self.member, self.fence, self.seen)


class ObjectToFetch(NamedTuple):
    """An object to fetch. `listed`, `entry`: as in the listing; None where it was requested by its pid."""

    pid: str
    listed: datetime | None
    entry: str | None = None


class Fetched(NamedTuple):
    wanted: ObjectToFetch
    metadata: SystemMetadata


class Failed(NamedTuple):
    wanted: ObjectToFetch
    reason: str
    status: int | None


class Known(NamedTuple):
    """What the catalog has of a stored object: its dates, in the listing and in its metadata; its entry in the listing,
    or as it would be there by its metadata; the fence of the run that stored it.
    """

    dates: set[datetime]
    entry: str
    fence: int


class FailedObject(NamedTuple):
    pid: str
    reason: str
    status: int | None
    tries: int
    failed_at: datetime
    next_try: datetime


class Cursor(NamedTuple):
    """The progress of an unfinished pass: all before `position` is stored. `started_from`: the nodelist's date then.

    `began`: when the pass began; the sightings of a complete one are noted under this instant. `anew`: of a pass that
    fetches everything, the fence of its first run.
    """

    kind: str
    started_from: datetime
    position: datetime
    began: datetime
    anew: int | None = None


class MemberSummary(NamedTuple):
    """The numbers of a member's objects, and its last run. `objects` does not count those that are `gone`.

    `reasons`: how many failed for which, an example with each. `slashes`: how many pids with a slash were not found
    (404), where none with a slash is stored. `alone_until`: ticks do nothing until then, since the member was silent.
    """

    objects: int
    failed: int
    ran_at: datetime | None
    outcome: str | None
    error: str | None
    gone: int
    reasons: dict[str, int]
    slashes: int
    alone_until: datetime | None


class Catalog:
    """The catalog. Raises UnusableDatabase."""

    def __init__(self, settings: Settings, *, may_be_newer: bool = False) -> None:
        self._delay, self._delay_max = settings.failure_delay, settings.failure_delay_max
        self.engine: Engine = open_database(settings.database, settings.host, CATALOG, may_be_newer=may_be_newer)

    def store(
        self,
        member: str,
        *,
        fence: int,
        fetched: Sequence[Fetched] = (),
        failed: Sequence[Failed] = (),
        cursor: Cursor | None = None,
        now: datetime,
    ) -> list[Failed]:
        """Store objects, failures and cursor in one transaction. Returns the failures that are new. Raises Superseded.

        Leaves out objects whose identifier the federation's schema forbids.
        """
        fetched = [item for item in fetched if storable(member, item.wanted.pid)]
        failed = [item for item in failed if storable(member, item.wanted.pid)]
        rows = [_object_row(member, item, fence) for item in fetched]
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            kinds = made_by(connection, member, rows)
            upsert(connection, objects, rows)
            for pids in portions([item.metadata.pid for item in fetched]):
                for table in (failures, gone):
                    connection.execute(delete(table).where(table.c.member == member, table.c.pid.in_(pids)))
            tried = self._record_failures(connection, member, failed, now)
            if cursor is not None:
                upsert(connection, cursors, [{"member": member, **cursor._asdict()}])
            record(connection, member, kinds, now)
        return [item for item in failed if item.wanted.pid not in tried]

    def cursor(self, member: str, kind: str) -> Cursor | None:
        query = select(cursors).where(cursors.c.member == member, cursors.c.kind == kind)
        with self.engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Cursor(*(getattr(row, name) for name in Cursor._fields))

    def finish(self, member: str, kind: str, *, fence: int) -> None:
        """End a pass: the next one begins at the date in the nodelist."""
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            connection.execute(delete(cursors).where(cursors.c.member == member, cursors.c.kind == kind))

    def ran(self, member: str, *, fence: int, now: datetime, outcome: str, error: str | None = None) -> None:
        """Note how the last run of a member ended."""
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            values = {"ran_at": now, "outcome": outcome, "error": error}
            connection.execute(update(members).where(members.c.member == member).values(values))

    def known(self, member: str, pids: Sequence[str]) -> dict[str, Known]:
        """What is stored of each object. Leaves out those that are gone: one that comes back is fetched, whatever its
        date.
        """
        known: dict[str, Known] = {}
        with self.engine.connect() as connection:
            for portion in portions(pids):
                query = select(*(objects.c[name] for name in _KNOWN)).where(
                    objects.c.member == member, objects.c.pid.in_(portion), ~is_gone()
                )
                known.update({row.pid: _known(row) for row in connection.execute(query)})
        return known

    def failing(self, member: str, pids: Sequence[str]) -> dict[str, tuple[datetime | None, datetime, datetime]]:
        """For each failed object: its date in the listing then, the time of its next try, and that of its last."""
        failing: dict[str, tuple[datetime | None, datetime, datetime]] = {}
        with self.engine.connect() as connection:
            for portion in portions(pids):
                query = select(failures).where(failures.c.member == member, failures.c.pid.in_(portion))
                failing.update(
                    {row.pid: (row.listed, row.next_try, row.failed_at) for row in connection.execute(query)}
                )
        return failing

    def due(self, member: str, now: datetime, limit: int) -> list[ObjectToFetch]:
        """Failed objects whose next try is due."""
        query = (
            select(failures.c.pid, failures.c.listed)
            .where(failures.c.member == member, failures.c.next_try <= now)
            .order_by(failures.c.next_try)
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return [ObjectToFetch(row.pid, row.listed) for row in connection.execute(query)]

    def newest(self, member: str, before: datetime) -> datetime | None:
        """The date of the newest stored object, also of one that is gone."""
        query = select(func.max(objects.c.listed)).where(objects.c.member == member, objects.c.listed < before)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def failed(self, member: str, limit: int = 100) -> list[FailedObject]:
        query = select(failures).where(failures.c.member == member).order_by(failures.c.pid).limit(limit)
        with self.engine.connect() as connection:
            return [
                FailedObject(*(getattr(row, name) for name in FailedObject._fields))
                for row in connection.execute(query)
            ]

    def objects(self, member: str, *, after: str = "", limit: int = 100) -> list[Mapping[str, Value]]:
        """The member's objects that are not gone, in the order of their pids, without their documents."""
        columns = [column for column in objects.c if column.name != "document"]
        query = select(*columns).where(objects.c.member == member, objects.c.pid > after, ~is_gone())
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query.order_by(objects.c.pid).limit(limit)).mappings()]

    def document(self, member: str, pid: str) -> bytes | None:
        query = select(objects.c.document).where(objects.c.member == member, objects.c.pid == pid)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def summary(self, member: str) -> MemberSummary:
        return self.summaries([member])[member]

    def summaries(self, names: Sequence[str]) -> dict[str, MemberSummary]:
        """What is kept of each of these members, in a few queries."""
        runs: dict[str, RowMapping] = {}
        reasons: dict[str, dict[str, int]] = {name: {} for name in names}
        slashes: dict[str, int] = {}
        counts: dict[Table, dict[str, int]] = {objects: {}, gone: {}}
        with self.engine.connect() as connection:
            for some in portions(names):
                for table, numbers in counts.items():
                    number = select(table.c.member, func.count()).where(table.c.member.in_(some))
                    numbers |= {row[0]: row[1] for row in connection.execute(number.group_by(table.c.member))}
                for name, reason, count in _reasons(connection, some):
                    reasons[name][reason] = count
                slashes |= _slashes(connection, some)
                last = select(members).where(members.c.member.in_(some))
                runs |= {str(row["member"]): row for row in connection.execute(last).mappings()}
        return {
            name: _summary(
                counts[objects].get(name, 0),
                counts[gone].get(name, 0),
                reasons[name],
                slashes.get(name, 0),
                runs.get(name),
            )
            for name in names
        }

    def _record_failures(
        self, connection: Connection, member: str, failed: Sequence[Failed], now: datetime
    ) -> dict[str, int]:
        """Note failures. Returns how often each object had failed before."""
        tries: dict[str, int] = {}
        for pids in portions([item.wanted.pid for item in failed]):
            query = select(failures.c.pid, failures.c.tries).where(
                failures.c.member == member, failures.c.pid.in_(pids)
            )
            tries.update({row.pid: row.tries for row in connection.execute(query)})
        rows = []
        for (pid, listed, _), reason, status in failed:
            number = tries.get(pid, 0) + 1
            # The exponent is capped: 2.0 ** 1100 raises OverflowError.
            delay = min(self._delay * 2.0 ** min(number - 1, 60), self._delay_max)
            rows.append(
                {"member": member, "pid": pid, "listed": listed, "reason": reason, "status": status, "tries": number}
                | {"kind": kind_of(reason, member, pid), "failed_at": now, "next_try": now + timedelta(seconds=delay)}
            )
        upsert(connection, failures, rows)
        return tries


def _summary(
    stored: int, lost: int, reasons: dict[str, int], slashes: int, run: RowMapping | None
) -> MemberSummary:  # fmt: skip
    failed = sum(reasons.values())
    if run is None:
        return MemberSummary(stored - lost, failed, None, None, None, lost, reasons, slashes, None)
    last = run["ran_at"], run["outcome"], run["error"]
    return MemberSummary(stored - lost, failed, *last, lost, reasons, slashes, run["alone_until"])


def _reasons(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Members, the reasons of their failures in a few words, and how many failed for each."""
    kind = func.coalesce(failures.c.kind, failures.c.reason)
    query = select(failures.c.member, kind, func.count(), func.min(failures.c.reason), func.min(failures.c.pid))
    query = query.where(failures.c.member.in_(names)).group_by(failures.c.member, kind)
    for name, words, count, reason, pid in connection.execute(query):
        yield name, reason if count == 1 else f"{words} (such as {pid[:EXAMPLE]})", count


def _slashes(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    query = select(failures.c.member, func.count()).where(failures.c.member.in_(names), failures.c.status == 404)
    query = query.where(failures.c.pid.contains("/")).group_by(failures.c.member)
    found = {row[0]: row[1] for row in connection.execute(query)}
    stored = select(members.c.member).where(members.c.member.in_(list(found)))
    stored = stored.where(exists().where(objects.c.pid.contains("/"), objects.c.member == members.c.member))
    fine = {*connection.execute(stored).scalars()} if found else set()
    return {name: count for name, count in found.items() if name not in fine}


def storable(member: str, pid: str) -> bool:
    """True if the federation's schema allows this identifier; else logs a warning."""
    try:
        pid.encode()
        fits = len(pid) <= LONGEST_PID and "\0" not in pid
    except UnicodeEncodeError:
        fits = False
    if not fits:
        logger.warning(
            "%s: an object cannot be kept: its identifier of %s characters is %a…", member, len(pid), pid[:60]
        )
    return fits


def guard(connection: Connection, member: str, fence: int) -> None:
    """Lock the member, as the first statement of a writing transaction. Raises Superseded for a stale fence."""
    statement = insert(connection, members).values(member=member, fence=fence)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["member"], set_={"fence": fence}, where=members.c.fence <= fence
        )
    )
    # Not every driver reports how many rows an upsert changed, so read it back. The row is locked until the end.
    seen = connection.execute(select(members.c.fence).where(members.c.member == member)).scalar_one()
    if seen != fence:
        raise Superseded(member, fence, seen)


def _object_row(member: str, item: Fetched, fence: int) -> dict[str, Value]:
    listed = item.wanted.listed or item.metadata.modified
    about = {"listed": listed, "entry": item.wanted.entry, "fence": fence}
    return {"member": member, **about, **item.metadata._asdict()}


def _known(row: Row[tuple[Value, ...]]) -> Known:
    entry = row.entry or entry_of(row.format_id, str(row.size), row.checksum, row.algorithm)
    return Known({row.listed, row.modified}, entry, row.fence)
