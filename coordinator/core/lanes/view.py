"""Reads lanes for people: line, holder and pause at one moment. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import cast

from coordinator.core.jobs.collecting import EQUAL
from coordinator.core.jobs.record import TERMINAL, Job, fields_in, reading
from coordinator.core.jobs.states import LaneState
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, act_in, number_in
from coordinator.core.store.steps import clock_read
from coordinator.core.store.times import EPOCH, ClockReading, instant
from coordinator.core.store.values import ActNote
from coordinator.core.store.wire import Arg

STATES = ("waiting", "ready", "running", "retrying", "parked", "held", "rolling_back", "empty")
_HELD = ("state", "node", "taken", "fence")
PAUSED = b"\1paused"
MARKS = (PAUSED,)  # stands in front of a line (rules/line.lua)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job or lock that holds a lane: it was started and is not over. `node`: where the job runs; None if it does not
    run now, and for a lock. `since`: the time of its first claim.

    `fence`: of the current attempt. `lease`: seconds until its lease ends unless it is renewed; None if it has no lease
    now, for example because the job waits for a retry.
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

    `waiting`: how many of these are neither ready nor started. `pause`: {why, by, at (ms)} of the pause; `until`: when
    it ends by itself.
    `holders`: the job or lock that was started, at most one. `state`: of the first job in line. `runs`: the last jobs
    that ended here, the latest first, where the caller wanted some. `collector`: the id of the job that collects the
    calls of this lane, in line or not yet; None: the next call begins one.
    """

    key: str
    jobs: tuple[str, ...]
    length: int
    state: LaneState
    holders: tuple[Holder, ...] = ()
    pause: ActNote | None = None
    until: datetime | None = None
    runs: tuple[Job, ...] = ()
    waiting: int = 0
    collector: str | None = None

    @property
    def holder(self) -> str | None:
        """The id of the job or lock that has the lane; None: nobody has it."""
        return self.holders[0].job_id if self.holders else None

    @property
    def paused(self) -> bool:
        return self.pause is not None


def why_closed(lane: Lane) -> str:
    """Return the reason why no job of the lane can start, for people; "" if jobs can start."""
    if lane.pause:
        return f"paused by {lane.pause['by']}: {lane.pause['why'] or 'no reason given'}"
    return ""


def lanes_at(store: Store, keys: Sequence[str], most: int) -> list[Lane]:
    """Read the lanes of these keys in two round trips, each with at most `most` ids of jobs."""
    if not keys:
        return []
    commands: list[Sequence[Arg]] = []
    for key in keys:
        line = store.key("line", key)
        commands += [("ZRANGEBYSCORE", line, "-inf", "-inf"), ("ZRANGE", line, 0, most + 1), ("ZCARD", line)]
        commands += [("HGET", store.key("paused"), key), ("ZSCORE", store.key("pauses"), key)]
        commands += [("GET", store.key("equal", EQUAL, key))]
    replies = store.read_many(commands)
    rows = [replies[at : at + 6] for at in range(0, len(replies), 6)]
    fronts = [jobs_in(pinned) or jobs_in(first)[:1] for pinned, first, *_ in rows]
    known = holders_of(store, [job_id for front in fronts for job_id in front])
    front_of = [{job_id: known[job_id] for job_id in front} for front in fronts]
    return [_lane(key, most, front, *row[1:]) for key, front, row in zip(keys, front_of, rows, strict=True)]


def holders_of(store: Store, ids: Sequence[str]) -> dict[str, tuple[str, Holder | None]]:
    """Read the state of each of these jobs or locks, and its Holder; None instead of a Holder if it was not started or
    is over.
    """
    if not ids:
        return {}
    leases, names = [("ZMSCORE", store.key(kind), *ids) for kind in ("leases", "locks")], _HELD
    own, others, clock, *replies = store.read_many([*leases, clock_read.looking(store), *reading(store, ids, *names)])
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


def jobs_in(ids: list[bytes]) -> list[str]:
    return [job_id.decode() for job_id in ids if job_id not in MARKS]


def _lane(
    key: str, most: int, front: dict[str, tuple[str, Holder | None]], ids: list[bytes], length: int,
    pause: bytes | None, ends: bytes | float | None, collector: bytes | None,
) -> Lane:  # fmt: skip
    """Build the view of a lane from the values that were read from Redis. `front`: state and Holder of each job that
    was started, or that is first in the line; `ids`: the beginning of the line.
    """
    started = [holder for _, holder in front.values() if holder]
    holders = tuple(sorted(started, key=attrgetter("since", "job_id")))
    jobs = tuple(dict.fromkeys([*(holder.job_id for holder in holders), *front, *jobs_in(ids)]))
    length -= sum(member in MARKS for member in ids)
    return Lane(
        key=key,
        jobs=jobs[:most],
        length=length,
        waiting=length - sum(state not in ("waiting", "") for state, _ in front.values()),
        state=cast(LaneState, front[jobs[0]][0]) if jobs else "empty",
        holders=holders,
        pause=act_in(pause),
        until=None if ends is None else instant(int(float(ends))),
        collector=collector.decode() if collector else None,
    )


def _since(taken: str) -> datetime:
    """Parse the time of the first claim in a job's record; in a damaged record 1970, which sorts before all others."""
    return FieldReader({"taken": taken}).instant("taken") or EPOCH
