"""Stores what the harvest of each member (a repository) yields: objects, failures, cursors, and how the last run ended.

The first statement of every writing transaction locks the member's row and compares the writer's fence with the
greatest one that has written for the member: a writer with a smaller fence writes nothing. A transaction that moves the
cursor also writes the objects before the new position. So every object before the cursor is stored. A transaction that
changes an object ends with writing the object's event (tasks/catalog/events.py).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Row, RowMapping, Table, delete, exists, func, select, update

from tasks.catalog.events import event_kinds, record
from tasks.catalog.kinds import kind_of
from tasks.catalog.schema import CATALOG, cursors, failures, gone, is_gone, members, objects
from tasks.database import Value, insert, open_database, portions, upsert
from tasks.member_node.objects import SystemMetadata, entry_of
from tasks.settings import Settings

EXAMPLE = 100  # characters of a pid that is shown as an example of a failure
LONGEST_PID = 800
"""The greatest length of an object's identifier, in characters, by the federation's XML schema.

An index of PostgreSQL cannot hold much longer keys.
"""

_KNOWN = ("pid", "listed", "modified", "entry", "fence", "format_id", "size", "checksum", "algorithm")

logger = logging.getLogger(__name__)


class Superseded(Exception):
    """Refuses a write to a member's rows: another job has written with a greater fence. `seen`: that fence."""

    def __init__(self, member: str, fence: int, seen: int) -> None:
        super().__init__(f"{member}: fence {fence} is stale: another job has written with fence {seen}")
        self.member, self.fence, self.seen = member, fence, seen

    def __reduce__(self) -> tuple[type["Superseded"], tuple[str, int, int]]:
        return type(self), (self.member, self.fence, self.seen)


class ObjectToFetch(NamedTuple):
    """An object whose metadata a run is to fetch. `listed`: the object's date in the member's listing.

    `entry`: a short hash of the object's entry in the listing. Both are None for an object requested by its pid.
    """

    pid: str
    listed: datetime | None
    entry: str | None = None


class Fetched(NamedTuple):
    """An object that a run has fetched, with the system metadata that the member returned."""

    wanted: ObjectToFetch
    metadata: SystemMetadata


class Failed(NamedTuple):
    """An object that a run could not fetch. `status`: the HTTP status of the answer; None: there was no answer."""

    wanted: ObjectToFetch
    reason: str
    status: int | None


class Known(NamedTuple):
    """What the catalog knows of a stored object. `dates`: the object's dates in the listing and in its metadata.

    `entry`: the hash of the object's entry in the listing, or computed from the metadata. `fence`: the fence of the run
    that stored the object.
    """

    dates: set[datetime]
    entry: str
    fence: int


class FailedObject(NamedTuple):
    """An object that could not be fetched. `status`: the HTTP status of the member's last answer, or None.

    `tries`: how often a run has tried. `failed_at`, `next_try`: when a run last tried, and will try again.
    """

    pid: str
    reason: str
    status: int | None
    tries: int
    failed_at: datetime
    next_try: datetime


class Cursor(NamedTuple):
    """The progress of an unfinished pass through a member's listing: all objects before `position` are stored.

    `kind`: the kind of pass, such as a complete one. `started_from`: the member's date in the nodelist when the pass
    began. `began`: when the pass began. `anew`: where the pass fetches all objects again, the fence of its first run:
    objects stored with a smaller fence are not fetched yet; None: the pass fetches the changed objects only.
    """

    kind: str
    started_from: datetime
    position: datetime
    began: datetime
    anew: int | None = None


class MemberSummary(NamedTuple):
    """How many objects of a member are stored, how many failed, and how the member's last run ended.

    `objects` does not count those that are `gone` (no longer at the member). `reasons`: the number of failures by
    reason. `slashes`: how many pids with a slash the member did not find (404), if no object with a slash was ever
    fetched from it, else 0. `alone_until`: the member did not answer, so that ticks start no run until then; or None.
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
    """Reads and writes the catalog in the database of `settings`. Raises UnusableDatabase.

    `may_be_newer`: accept tables that a newer version of the program has migrated.
    """

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
        """Store fetched objects, failures and the cursor of a member in one transaction.

        `cursor`: None changes no cursor. Leaves out objects whose identifier the federation's schema forbids. Returns
        the failures of objects that had not failed before. Raises Superseded.
        """
        fetched = [item for item in fetched if storable(member, item.wanted.pid)]
        failed = [item for item in failed if storable(member, item.wanted.pid)]
        rows = [_object_row(member, item, fence) for item in fetched]
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            kinds = event_kinds(connection, member, rows)
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
        """Read the cursor of the member's unfinished pass of this kind. None: there is none."""
        query = select(cursors).where(cursors.c.member == member, cursors.c.kind == kind)
        with self.engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Cursor(*(getattr(row, name) for name in Cursor._fields))

    def finish(self, member: str, kind: str, *, fence: int) -> None:
        """Delete the cursor of a finished pass, so that the next pass begins at the member's date in the nodelist.

        Raises Superseded.
        """
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            connection.execute(delete(cursors).where(cursors.c.member == member, cursors.c.kind == kind))

    def ran(self, member: str, *, fence: int, now: datetime, outcome: str, error: str | None = None) -> None:
        """Store how a member's run ended. `outcome`: such as `succeeded`. `error`: a message. Raises Superseded."""
        with self.engine.begin() as connection:
            guard(connection, member, fence)
            values = {"ran_at": now, "outcome": outcome, "error": error}
            connection.execute(update(members).where(members.c.member == member).values(values))

    def known(self, member: str, pids: Sequence[str]) -> dict[str, Known]:
        """Return, by pid, the objects in `pids` that are stored.

        Leaves out objects that are gone, so that a run fetches an object that has come back, whatever its date.
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
        """Return, by pid, the objects in `pids` whose fetch failed.

        Each with: the date in the listing when it failed (None: requested by its pid), the time of the next try, and
        the time of the last one.
        """
        failing: dict[str, tuple[datetime | None, datetime, datetime]] = {}
        with self.engine.connect() as connection:
            for portion in portions(pids):
                query = select(failures).where(failures.c.member == member, failures.c.pid.in_(portion))
                failing.update(
                    {row.pid: (row.listed, row.next_try, row.failed_at) for row in connection.execute(query)}
                )
        return failing

    def due(self, member: str, now: datetime, limit: int) -> list[ObjectToFetch]:
        """Return at most `limit` failed objects of a member whose next try is due at `now`, the longest due first."""
        query = (
            select(failures.c.pid, failures.c.listed)
            .where(failures.c.member == member, failures.c.next_try <= now)
            .order_by(failures.c.next_try)
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return [ObjectToFetch(row.pid, row.listed) for row in connection.execute(query)]

    def newest(self, member: str, before: datetime) -> datetime | None:
        """Return the greatest date in the listing of the member's stored objects, gone ones included, below `before`.

        None: no object of the member has such a date.
        """
        query = select(func.max(objects.c.listed)).where(objects.c.member == member, objects.c.listed < before)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def failed(self, member: str, limit: int = 100) -> list[FailedObject]:
        """Read the member's first failed objects, in the order of their pids."""
        query = select(failures).where(failures.c.member == member).order_by(failures.c.pid).limit(limit)
        with self.engine.connect() as connection:
            return [
                FailedObject(*(getattr(row, name) for name in FailedObject._fields))
                for row in connection.execute(query)
            ]

    def objects(self, member: str, *, after: str = "", limit: int = 100) -> list[Mapping[str, Value]]:
        """Read at most `limit` objects of a member, without their documents, in the order of their pids.

        Leaves out objects that are gone. `after`: the last pid of the previous page; "" for the first page.
        """
        columns = [column for column in objects.c if column.name != "document"]
        query = select(*columns).where(objects.c.member == member, objects.c.pid > after, ~is_gone())
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query.order_by(objects.c.pid).limit(limit)).mappings()]

    def document(self, member: str, pid: str) -> bytes | None:
        """Read the XML document of an object's system metadata. None: the object is not stored."""
        query = select(objects.c.document).where(objects.c.member == member, objects.c.pid == pid)
        with self.engine.connect() as connection:
            return connection.execute(query).scalar()

    def summary(self, member: str) -> MemberSummary:
        return self.summaries([member])[member]

    def summaries(self, names: Sequence[str]) -> dict[str, MemberSummary]:
        """Read the summaries of all members in `names`, with a few queries."""
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
        """Store failures, with the time of the next try. Returns, by pid, how often an object had failed before."""
        tries: dict[str, int] = {}
        for pids in portions([item.wanted.pid for item in failed]):
            query = select(failures.c.pid, failures.c.tries).where(
                failures.c.member == member, failures.c.pid.in_(pids)
            )
            tries.update({row.pid: row.tries for row in connection.execute(query)})
        rows = []
        for (pid, listed, _), reason, status in failed:
            number = tries.get(pid, 0) + 1
            # The exponent is at most 60, since a great one, such as 2.0 ** 1100, raises OverflowError.
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
    """For each member and kind of failure, yield the member, a reason with an example, and the number of failures."""
    kind = func.coalesce(failures.c.kind, failures.c.reason)
    query = select(failures.c.member, kind, func.count(), func.min(failures.c.reason), func.min(failures.c.pid))
    query = query.where(failures.c.member.in_(names)).group_by(failures.c.member, kind)
    for name, words, count, reason, pid in connection.execute(query):
        yield name, reason if count == 1 else f"{words} (such as {pid[:EXAMPLE]})", count


def _slashes(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Count, by member, the pids with a slash that were not found (404).

    Leaves out members of which an object with a slash in its pid is stored.
    """
    query = select(failures.c.member, func.count()).where(failures.c.member.in_(names), failures.c.status == 404)
    query = query.where(failures.c.pid.contains("/")).group_by(failures.c.member)
    counts = {row[0]: row[1] for row in connection.execute(query)}
    stored = select(members.c.member).where(members.c.member.in_(list(counts)))
    stored = stored.where(exists().where(objects.c.pid.contains("/"), objects.c.member == members.c.member))
    fine = {*connection.execute(stored).scalars()} if counts else set()
    return {name: count for name, count in counts.items() if name not in fine}


def storable(member: str, pid: str) -> bool:
    """True if the federation's XML schema allows the identifier `pid`. Otherwise logs a warning."""
    try:
        pid.encode()
        fits = len(pid) <= LONGEST_PID and "\0" not in pid
    except UnicodeEncodeError:
        fits = False
    if not fits:
        logger.warning(
            "%s: an object cannot be stored: its identifier of %s characters is %a…", member, len(pid), pid[:60]
        )
    return fits


def guard(connection: Connection, member: str, fence: int) -> None:
    """Lock the member's row, as the first statement of a writing transaction, and store the writer's fence.

    Raises Superseded if a greater fence is stored.
    """
    statement = insert(connection, members).values(member=member, fence=fence)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["member"], set_={"fence": fence}, where=members.c.fence <= fence
        )
    )
    # Read the fence back, since not every driver reports how many rows an upsert changed. The row stays locked until
    # the transaction ends.
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
