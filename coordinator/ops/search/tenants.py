"""Counts the jobs below each beginning of keys, such as `tenant/acme/`: which tenant floods?

Redis has the keys of all lanes in order (`lanes`), the lanes in which more than one job stands (`contended`), and the
paused ones. So the jobs in line below a beginning are its lanes, and the jobs beyond one in its contended lanes, less
its paused lanes without jobs. No step counts anything for this, and no record of a waiting job is read. What runs is
read from the leases, and what failed from the lists of ended jobs.

A look with a bound in time walks the contended lanes, then all lanes, then the failures, each until a part of the time
is over. Contended lanes come in no order, so that a walk which is cut short has seen a part of each large row. Where
the walk over all lanes was cut short, 1,000 places spread evenly over the rest show each row that has a thousandth of
them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest, nsmallest
from typing import Literal

from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs.options import Use
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.jobs.states import BADLY
from coordinator.core.jobs.uses import uses_in
from coordinator.core.jobs.validation import utf8
from coordinator.core.lanes.view import MARKS, jobs_in
from coordinator.core.quotas.client import Quota, QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, number_in
from coordinator.core.store.step import Reply
from coordinator.core.store.steps import lanes_grouped, lines_grouped
from coordinator.core.store.times import instant, milliseconds
from coordinator.core.store.wire import Arg
from coordinator.ops.search.jobs import scored

TenantSort = Literal["waiting", "running", "failed", "slots", "lanes", "weight", "prefix"]
Kind = Literal["prefix", "lane", "keyless"]
_HOUR = 3_600_000  # ms
_PORTION = 5000  # lanes that one step reads
_FAILURES = 1000  # of each kind that are read at once
_SPREAD = 1000  # places that are looked at where the walk was cut short
_ASKED = 5000  # rows of which the number of lanes is asked one by one
_QUOTAS = 5  # of a row


@dataclass(frozen=True, slots=True)
class Tenant:
    """The jobs of all lanes whose keys begin alike.

    `prefix`: that beginning, up to and with a `/`; the whole key where `kind` is `lane`; "" for the jobs without a key
    (`keyless`). `lanes`: lanes that have jobs or are paused; `paused`: how many of them are. `waiting`: jobs that stand
    in line and do not run, once for each of their lanes below the prefix; `running`: jobs that run and locks that are
    held; `failed`: jobs that ended by a fault since `Tenants.failed_since`. `share`: of the slots of all living nodes,
    from 0 to 1; None where no node lives. `group`: the one whose `weight` its jobs have. `quotas`: at most five, those
    that its jobs use that run, and its first one in line, and the one that is named as the prefix is.
    """

    prefix: str
    kind: Kind
    lanes: int
    paused: int
    waiting: int
    running: int
    failed: int
    share: float | None
    group: str
    weight: float
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class Tenants:
    """The tenants below a prefix, and all of them together. `more`: how many other rows there are.

    `slots`: those of all living nodes. `failed_since`: an hour ago, or since when Redis still has all failures.
    `complete`: False where the time was too short to look at all: then each number is that or more, and there may be
    further rows. Jobs that come and go meanwhile may be missed, or counted twice.
    """

    prefix: str
    tenants: tuple[Tenant, ...]
    more: int
    lanes: int
    waiting: int
    running: int
    failed: int
    slots: int
    failed_since: datetime
    complete: bool


def look(store: Store, prefix: str, sort: TenantSort, most: int, seconds: float | None) -> Tenants:
    """Read the `most` largest tenants below a prefix of keys. `seconds`: about how long it may take; None: until it has
    looked at all.
    """
    found = _Look(store, prefix, most, seconds)
    found.read()
    weights = QuotaClient(store).weights()
    slots = sum(node.capacity for node in Nodes(store).living())
    count, waiting, shown = found.count(), found.waiting, found.chosen(sort, weights)
    details = _Details(store, prefix, shown)
    quotas = details.read()
    tenants = []
    for name, row in shown.items():
        share, weight = row.slots / slots if slots else None, weights.get(details.groups[name], 1.0)
        kind: Kind = "keyless" if not name else "lane" if is_lane(prefix, name) else "prefix"
        numbers = row.lanes or 0, row.paused, row.waiting, row.running, row.failed
        tenants.append(Tenant(name, kind, *numbers, share, details.groups[name], weight, quotas[name]))
    return Tenants(
        prefix, tuple(tenants), max(0, count - len(tenants)), found.lanes, waiting, found.running, found.failed, slots,
        found.failed_since, found.complete,
    )  # fmt: skip


@dataclass(slots=True)
class _Row:
    """What is known of a tenant. `lanes`: None as long as nobody counted them. `beyond`: the jobs beyond one in its
    `contended` lanes, less its paused lanes without jobs. `at_work`: jobs that run, once for each of their lanes;
    `slots`: those that run in a slot. `uses`: names of quotas.
    """

    lanes: int | None = None
    beyond: int = 0
    contended: int = 0
    paused: int = 0
    at_work: int = 0
    running: int = 0
    slots: int = 0
    failed: int = 0
    uses: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        return max(0, (self.lanes or 0) + self.beyond - self.at_work)


def is_lane(prefix: str, name: str) -> bool:
    """True if the row of this name below `prefix` is a single lane, not a beginning of keys."""
    return not name.endswith("/") or name == prefix


class _Look:
    """One look at all tenants below a prefix. `rows`: by name, "" = the jobs without a key. `grouped`: how many groups
    of lanes there are; `unnamed`: those of one lane that have no row; `rest`: the jobs beyond one in lanes without a
    row.
    """

    def __init__(self, store: Store, prefix: str, most: int, seconds: float | None) -> None:
        self.store, self.prefix, self.most = store, prefix, most
        self.rows: dict[str, _Row] = defaultdict(_Row)
        self.complete, self.walked = True, True
        self.grouped = self.unnamed = self.rest = self.lanes = self.running = self.failed = 0
        self._began, self._seconds = time.monotonic(), seconds
        first = utf8("prefix", prefix)
        self._bounds = (b"[" + first, b"(" + first + b"\xff") if first else (b"-", b"+")

    def _late(self, part: float) -> bool:
        """True once this part of the time is over."""
        return self._seconds is not None and time.monotonic() - self._began > self._seconds * part

    def read(self) -> None:
        self._read_sizes()
        self._read_work()
        self._read_lines("paused", 0.3)
        self._read_lines("contended", 0.6)
        self._read_lanes()
        self._read_failures()
        self._count_lanes()

    @property
    def waiting(self) -> int:
        in_line = self.lanes + self.rest + sum(row.beyond for row in self.rows.values())
        return max(0, in_line - sum(row.at_work for row in self.rows.values()))

    def _read_sizes(self) -> None:
        """Count the lanes, and the jobs without a key."""
        key = self.store.key
        commands: list[Sequence[Arg]] = [("ZLEXCOUNT", key("lanes"), *self._bounds), ("ZCARD", key("line", ""))]
        self.lanes, without_key = self.store.read_many(commands)
        if not self.prefix:
            self.rows[""] = _Row(lanes=0, beyond=without_key)

    def _names(self, keys: str) -> Counter[str]:
        """Count the keys of a job by the rows that they belong to. `keys`: as a record has them."""
        return Counter(self._name(key) for key in keys.split("\n") if key.startswith(self.prefix))

    def _name(self, key: str) -> str:
        slash = key.find("/", len(self.prefix))
        return key if slash < 0 else key[: slash + 1]

    def _read_work(self) -> None:
        """Read which jobs run, and which locks are held."""
        kinds = [("ZRANGE", self.store.key(kind), 0, -1) for kind in ("leases", "locks")]
        for ids, slots in zip(self.store.read_many(kinds), (1, 0), strict=True):
            for keys, uses in fields_of_many(self.store, jobs_in(ids), "keys", "uses"):
                names = self._names(keys)
                self.running += bool(names)
                for name, number in names.items():
                    row = self.rows[name]
                    row.running, row.at_work, row.slots = row.running + 1, row.at_work + number, row.slots + slots
                    row.uses.update(used(uses))

    def _read_lines(self, kind: Literal["contended", "paused"], part: float) -> None:
        """Add the jobs beyond one of all lanes of a kind. Of single lanes, only the longest get rows."""
        cursor, longest = b"0", [0]
        while True:
            cursor, rest, found = lines_grouped.look(self.store, kind, cursor, self.prefix, min(longest))
            self.rest += rest
            for name, beyond, lanes in zip(_texts(found[::3]), found[1::3], found[2::3], strict=True):
                row = self.rows[name]
                row.beyond += beyond
                if kind == "paused":
                    row.paused += lanes
                    continue
                row.contended += lanes
                if is_lane(self.prefix, name):
                    longest.append(beyond)
            longest = nlargest(self.most, longest) if len(longest) > self.most else longest
            if cursor == b"0":
                return
            if self._late(part):
                self.complete = False
                return

    def _read_lanes(self) -> None:
        """Count the lanes of each row. Rows of one lane are only counted, once there are enough of them."""
        place, alone = b"", 0
        while True:
            place, unnamed, found = lanes_grouped.look(self.store, self.prefix, place, _PORTION, self.most - alone)
            for name, lanes in zip(_texts(found[::2]), found[1::2], strict=True):
                self.rows[name].lanes = lanes
                alone += lanes == 1
            self.grouped, self.unnamed = self.grouped + len(found) // 2 + unnamed, self.unnamed + unnamed
            if not place:
                return
            if self._late(0.8):
                self.complete = self.walked = False
                return self._spread(place)

    def _spread(self, place: bytes) -> None:
        """Name the rows at places that are spread evenly over the lanes behind `place`."""
        lanes = self.store.key("lanes")
        counts: list[Sequence[Arg]] = [
            ("ZLEXCOUNT", lanes, "-", b"(" + place), ("ZLEXCOUNT", lanes, b"(" + place, self._bounds[1])
        ]  # fmt: skip
        before, left = self.store.read_many(counts)
        ranks = sorted({before + left * number // _SPREAD for number in range(_SPREAD)})
        for found in self.store.read_many([("ZRANGE", lanes, rank, rank) for rank in ranks]):
            for name in map(self._name, _texts(found)):
                if not is_lane(self.prefix, name):
                    self.rows[name].lanes = self.rows[name].lanes  # a row, whose lanes are counted later

    def _read_failures(self) -> None:
        """Count the jobs that failed in the last hour."""
        key, now, kept = self.store.key, self.store.now(), milliseconds(self.store.settings.keep_failure)
        oldest = self.store.read_many([("ZRANGE", key(f"ended-before:{state}"), 0, 0, "WITHSCORES") for state in BADLY])
        # A list that took the place of an older one has its ends since its first entry.
        begins = [int(at) for reply in oldest for _, at in scored(reply)]
        since = max(now - _HOUR, now - kept, *begins)
        self.failed_since = instant(since)
        for ends in self._ends(since, now):
            records = fields_of_many(self.store, [job_id for job_id, _, _ in ends], "state", "ended", "keys")
            for (_, state, at), (is_now, ended, keys) in zip(ends, records, strict=True):
                if is_now == state and number_in(ended) == at:  # else it was retried, or is forgotten
                    names = self._names(keys)
                    self.failed += bool(names)
                    for name in names:
                        self.rows[name].failed += 1
            if self._late(1):
                self.complete = False
                return

    def _ends(self, since: int, now: int) -> Iterator[list[tuple[str, str, int]]]:
        """Yield the jobs that failed, each with its state and the ms of its end, in portions: the latest first."""
        lists, start = [(state, f"{kind}:{state}") for state in BADLY for kind in ("ended", "ended-before")], 0
        while lists:
            page = (now, since, "WITHSCORES", "LIMIT", start, _FAILURES)
            replies = self.store.read_many([("ZREVRANGEBYSCORE", self.store.key(name), *page) for _, name in lists])
            found = [scored(reply) for reply in replies]
            pairs = zip(lists, found, strict=True)
            yield [(job_id.decode(), state, int(at)) for (state, _), ends in pairs for job_id, at in ends]
            lists = [one for one, ends in zip(lists, found, strict=True) if len(ends) == _FAILURES]
            start += _FAILURES

    def _count_lanes(self) -> None:
        """Count the lanes of rows that the walk did not name: those of one lane or none, and those it did not reach."""
        if (without_key := self.rows.get("")) and not (without_key.beyond or without_key.running or without_key.failed):
            del self.rows[""]
        known = self.walked
        for row in self.rows.values():
            if row.lanes is None and known and (row.contended or row.at_work):
                row.lanes = 1
        open_ = [(name, row) for name, row in self.rows.items() if row.lanes is None]
        open_ = nlargest(_ASKED, open_, key=lambda pair: (pair[1].beyond, pair[1].at_work))
        counted = self.store.read_many([self.counting(name) for name, _ in open_]) if open_ else ()
        for (_, row), lanes in zip(open_, counted, strict=True):
            row.lanes = lanes

    def counting(self, name: str) -> Sequence[Arg]:
        """Return the command that counts the lanes of a row."""
        first = b"[" + name.encode()
        last = first if is_lane(self.prefix, name) else b"(" + name.encode() + b"\xff"
        return "ZLEXCOUNT", self.store.key("lanes"), first, last

    def count(self) -> int:
        """Count all rows: the groups of lanes that the walk met, and the rows that it did not."""
        if not self.walked:
            return len(self.rows)
        return self.grouped + sum(not row.lanes for row in self.rows.values())

    def chosen(self, sort: TenantSort, weights: Mapping[str, float]) -> dict[str, _Row]:
        """Return the first rows in the order of `sort`: numbers from the greatest down, prefixes as texts."""

        def order(pair: tuple[str, _Row]) -> tuple[float, int, str]:
            name, row = pair
            if sort == "prefix":
                return 0, 0, name
            numbers = {
                "waiting": row.waiting, "running": row.running, "failed": row.failed, "slots": row.slots,
                "lanes": row.lanes or 0, "weight": weights.get(group_of(name), 1.0),
            }  # fmt: skip
            return -numbers[sort], -row.waiting, name

        return dict(nsmallest(self.most, self.rows.items(), key=order))


class _Details:
    """What is read only of the rows that are shown: their first jobs, and what a single lane has."""

    def __init__(self, store: Store, prefix: str, rows: Mapping[str, _Row]) -> None:
        self.store, self.prefix, self.rows = store, prefix, rows
        self.groups = {name: group_of(name) for name in rows}

    def read(self) -> dict[str, tuple[Quota, ...]]:
        """Complete the rows, and return the quotas of each."""
        firsts = self._first_lanes()
        lines = [("ZRANGE", self.store.key("line", lane), 0, 1) for lane in firsts.values()]
        jobs = {name: jobs_in(ids)[:1] for name, ids in zip(firsts, self._replies(lines), strict=True)}
        ids = [job_id for found in jobs.values() for job_id in found]
        records = dict(zip(ids, fields_of_many(self.store, ids, "keys", "uses", "group"), strict=True))
        for name, found in jobs.items():
            for keys, uses, group in map(records.__getitem__, found):
                self.rows[name].uses.update(used(uses))
                if group and self._is_of(name, keys):
                    self.groups[name] = group
        return self._quotas()

    def _replies(self, commands: Sequence[Sequence[Arg]]) -> list[Reply]:
        return self.store.read_many(commands) if commands else []

    def _is_of(self, name: str, keys: str) -> bool:
        """True if the first key of a job, which names its group, belongs to the row."""
        first = keys.partition("\n")[0]
        return first == name if is_lane(self.prefix, name) else first.startswith(name)

    def _first_lanes(self) -> dict[str, str]:
        """Return a lane of each row that has some, and correct the numbers of rows that are single lanes."""
        key = self.store.key
        commands: list[Sequence[Arg]] = []
        for name in self.rows:
            first, line = b"[" + name.encode(), key("line", name)
            commands += [("ZRANGEBYLEX", key("lanes"), first, b"(" + name.encode() + b"\xff", "LIMIT", 0, 1)]
            commands += [("ZCARD", line), ("ZRANGE", line, 0, 0), ("HEXISTS", key("paused"), name)]
        replies, firsts = self._replies(commands), dict[str, str]()
        for number, (name, row) in enumerate(self.rows.items()):
            lanes, length, head, paused = replies[4 * number : 4 * number + 4]
            if name == "":
                firsts[name] = name
            elif lanes:
                firsts[name] = lanes[0].decode()
            if name and is_lane(self.prefix, name):
                row.lanes, row.paused = int(firsts.get(name) == name), int(paused)
                row.beyond = length - sum(one in MARKS for one in head) - row.lanes
        return {name: lane for name, lane in firsts.items() if not is_lane(self.prefix, name) or lane == name}

    def _quotas(self) -> dict[str, tuple[Quota, ...]]:
        """Read the quotas of each row, where they are declared or in use: first those that have its name."""
        wanted = dict[str, list[str]]()
        for name, row in self.rows.items():
            own = {one for one in row.uses if one.split("/")[-1] in name.split("/")}
            wanted[name] = [name.removesuffix("/"), *sorted(own), *sorted(row.uses - own)]
        names = [*dict.fromkeys(name for names in wanted.values() for name in names if name)]
        known = {quota.name: quota for quota in QuotaClient(self.store).read_many(names) if _is_there(quota)}
        return {
            name: tuple(known[one] for one in dict.fromkeys(names) if one in known)[:_QUOTAS]
            for name, names in wanted.items()
        }


def _is_there(quota: Quota) -> bool:
    """True if a quota is declared or in use, or has a default of its kind of names: not that of all names."""
    return bool(quota.declared or quota.used or quota.waiting or quota.default not in (None, "*"))


def group_of(name: str) -> str:
    """Return the group in which jobs share slots, for a key or a beginning of keys, unless an app names others."""
    return name[: max(0, name.find("/"))]


def used(uses: str) -> list[str]:
    """Return the names of quotas in a record's field `uses`; none where it is damaged."""
    nothing: dict[str, Use] = {}
    return [*FieldReader({"uses": uses}).get("uses", uses_in, nothing)]


def _texts(found: Sequence[bytes]) -> list[str]:
    return [text.decode() for text in found]
