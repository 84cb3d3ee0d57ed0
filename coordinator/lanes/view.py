"""Reads lanes for people: line, limit, holder and marks at one moment. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import cast

from coordinator.jobs.record import TERMINAL, Job, fields_in, fields_of_many, reading
from coordinator.jobs.search import pages, search
from coordinator.jobs.states import LaneState
from coordinator.jobs.validation import stored_lane
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, act_in, number_in
from coordinator.store.times import EPOCH, ClockReading
from coordinator.store.values import ActNote
from coordinator.store.wire import Arg

STATES = ("waiting", "ready", "running", "retrying", "parked", "held", "rolling_back", "empty")
_PAGE = 1000
_DRAWN = 10_000  # lanes of which the longest are sought
_HELD = ("state", "node", "taken", "fence")
_UNPINNED = ("(-inf", "+inf")  # the scores of those that wait, and of the first job of a line without a mark
PAUSED = b"\1paused"
MARKS = (b"\1limit", PAUSED)  # stand in front of a line (rules/line.lua)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that was started and is not over, or a lock. `node`: where it runs; `since`: its first claim.

    `fence`: of its attempt. `lease`: seconds until its lease ends unless it is renewed; None: nobody holds one now.
    """

    job_id: str
    node: str | None
    since: datetime
    fence: int | None = None
    lease: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.job_id} on {self.node}" if self.node else self.job_id


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane at one moment. `jobs`: the ids in line, at most as many as the caller wanted; `length`: of the whole line.

    `waiting`: how many of these are neither ready nor started. `limit`: how many jobs may run at once. `pause`,
    `limited`: {why, by, at (ms)} of the pause, and of the limit.
    `holders`: the jobs that were started, the earliest first. `state`: of the first job in line. `runs`: the last jobs
    that ended here, the latest first, where the caller wanted some.
    """

    key: str
    jobs: tuple[str, ...]
    length: int
    state: LaneState
    holders: tuple[Holder, ...] = ()
    pause: ActNote | None = None
    limit: int = 1
    limited: ActNote | None = None
    runs: tuple[Job, ...] = ()
    waiting: int = 0

    @property
    def holder(self) -> str | None:
        """The id of the job that was started first; None where no job holds the lane."""
        return self.holders[0].job_id if self.holders else None

    @property
    def paused(self) -> bool:
        return self.pause is not None


def why_closed(lane: Lane) -> str:
    """The reason why no job of the lane starts, for people; "" where jobs may start."""
    if lane.pause:
        return f"paused by {lane.pause['by']}: {lane.pause['why'] or 'no reason given'}"
    return "" if lane.limit else "closed: its limit is 0"


def lanes(store: Store, prefix: str, state: LaneState | None, most: int, after: str) -> list[Lane]:
    """List the lanes that have jobs, are paused, or have a limit of their own, by key.

    A page costs the same however many lanes there are.
    """
    chosen: list[Lane] = []
    for keys in pages(store, stored_lane(prefix), after, min(most, _PAGE)):
        chosen += [lane for lane in lanes_at(store, keys, 1) if _there(lane) and state in (None, lane.state)]
        if len(chosen) >= most:
            break
    return chosen[:most]


@dataclass(frozen=True, slots=True)
class Lines:
    """`longest`: the lanes in which most jobs wait. `lanes`: the number in which more than one job stands. `looked`: at
    how many of these; they are drawn by chance where that is fewer.
    """

    longest: tuple[Lane, ...]
    lanes: int
    looked: int


def contended(store: Store, most: int) -> Lines:
    """The lanes with the longest lines. Steps keep all of those in which more than one job stands (rules/line.lua)."""
    name = store.key("contended")
    count, drawn = store.read_many([("SCARD", name), ("SRANDMEMBER", name, _DRAWN)])
    keys = [key.decode() for key in drawn]
    counts = store.read_many([("ZCOUNT", store.key("line", key), *_UNPINNED) for key in keys]) if keys else []
    longest = [key for number, key in sorted(zip(counts, keys, strict=True), reverse=True)[:most] if number]
    return Lines(tuple(lanes_at(store, longest, 1)), count, len(keys))


def oldest(store: Store, lanes: Sequence[Lane]) -> dict[str, tuple[str, datetime | None]]:
    """The first job in each line that was not started, and when it was submitted; by key."""
    lines = [("ZRANGEBYSCORE", store.key("line", lane.key), "(-inf", "+inf", "LIMIT", 0, 2) for lane in lanes]
    found = dict[str, str]()
    for lane, ids in zip(lanes, store.read_many(lines) if lines else (), strict=True):
        started = {holder.job_id for holder in lane.holders}
        waiting = [job_id for job_id in _jobs(ids) if job_id not in started]
        if waiting:
            found[lane.key] = waiting[0]
    records = fields_of_many(store, [*found.values()], "submitted")
    instants = [FieldReader({"submitted": at or ""}).instant("submitted") for (at,) in records]
    return {key: (job_id, at) for (key, job_id), at in zip(found.items(), instants, strict=True)}


def lanes_at(store: Store, keys: Sequence[str], most: int) -> list[Lane]:
    """Read these lanes, in two round trips."""
    if not keys:
        return []
    commands: list[Sequence[Arg]] = []
    for key in keys:
        line = store.key("line", key)
        commands += [("ZRANGEBYSCORE", line, "-inf", "-inf"), ("ZRANGE", line, 0, most + 1), ("ZCARD", line)]
        commands += [("HGET", store.key(kind), key) for kind in ("paused", "limits")]
    replies = store.read_many(commands)
    rows = [replies[at : at + 5] for at in range(0, len(replies), 5)]
    fronts = [_jobs(pinned) or _jobs(first)[:1] for pinned, first, *_ in rows]
    known = holders_of(store, [job_id for front in fronts for job_id in front])
    front_of = [{job_id: known[job_id] for job_id in front} for front in fronts]
    return [_lane(key, most, front, *row[1:]) for key, front, row in zip(keys, front_of, rows, strict=True)]


def whole(store: Store, key: str, most: int, runs: int) -> Lane:
    """Read a lane with its last runs."""
    (lane,) = lanes_at(store, [key], most)
    return replace(lane, runs=search(store, runs, state=sorted(TERMINAL), key=key).jobs) if runs else lane


def holders_of(store: Store, ids: Sequence[str]) -> dict[str, tuple[str, Holder | None]]:
    """The state of each of these jobs, and what it holds where it was started."""
    if not ids:
        return {}
    leases, names = [("ZMSCORE", store.key(kind), *ids) for kind in ("leases", "locks")], _HELD
    own, others, clock, *replies = store.read_many([*leases, store.looking("clock_read"), *reading(store, ids, *names)])
    ends = [one or other for one, other in zip(own, others, strict=True)]
    now, records = ClockReading(*clock).uptime, fields_in(replies, *names)
    return {
        job_id: (record[0], _holder(job_id, None if end is None else (end - now) / 1000, *record))
        for job_id, record, end in zip(ids, records, ends, strict=True)
    }


def _holder(job_id: str, lease: float | None, state: str, node: str, taken: str, fence: str) -> Holder | None:
    if not taken or state in TERMINAL:
        return None
    where = node if state == "running" and node else None
    return Holder(job_id, where, _since(taken), number_in(fence), lease)


def locks(store: Store, most: int) -> list[tuple[str, Holder]]:
    """The first `most` lanes that plain code holds as locks, and their holders."""
    ids = [job_id.decode() for job_id in store.read("ZRANGE", store.key("locks"), 0, most - 1)]
    lanes = [keys.partition("\n")[0] for (keys,) in fields_of_many(store, ids, "keys")]
    known = holders_of(store, ids)
    return [(lane, holder) for lane, job_id in zip(lanes, ids, strict=True) if (holder := known[job_id][1])]


def _jobs(ids: list[bytes]) -> list[str]:
    return [job_id.decode() for job_id in ids if job_id not in MARKS]


def _lane(
    key: str, most: int, front: dict[str, tuple[str, Holder | None]], ids: list[bytes], length: int,
    pause: bytes | None, limits: bytes | None,
) -> Lane:  # fmt: skip
    """Make the view of a lane from what Redis holds of it. `front`: state and holder of each job in front."""
    started = [holder for _, holder in front.values() if holder]
    holders = tuple(sorted(started, key=attrgetter("since", "job_id")))
    jobs = tuple(dict.fromkeys([*(holder.job_id for holder in holders), *front, *_jobs(ids)]))
    limit, limited = limit_in(limits)
    length -= sum(member in MARKS for member in ids)
    return Lane(
        key=key,
        jobs=jobs[:most],
        length=length,
        waiting=length - sum(state not in ("waiting", "") for state, _ in front.values()),
        state=cast(LaneState, front[jobs[0]][0]) if jobs else "empty",
        holders=holders,
        pause=act_in(pause),
        limit=limit,
        limited=limited,
    )


def limit_in(text: bytes | None) -> tuple[int, ActNote | None]:
    """How many jobs of a lane may run at once, and who set that. A damaged limit counts as 1, as in rules/line.lua."""
    number, _, who = (text or b"").partition(b"{")
    limit = number_in(number)
    return 1 if limit is None else limit, act_in(b"{" + who) if text else None


def _since(taken: str) -> datetime:
    """The time of the first claim; in a damaged record, one before all others."""
    return FieldReader({"taken": taken}).instant("taken") or EPOCH


def _there(lane: Lane) -> bool:
    """True if the lane is still to be listed: it may have become empty since its name was read."""
    return bool(lane.length) or lane.paused or lane.limited is not None
