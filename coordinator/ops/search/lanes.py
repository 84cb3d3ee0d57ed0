"""Finds lanes: by a prefix of their keys, by the length of their lines, and those that plain code holds as locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from coordinator.core.jobs.record import TERMINAL, fields_of_many
from coordinator.core.jobs.states import LaneState
from coordinator.core.jobs.validation import stored_lane
from coordinator.core.lanes.view import Holder, Lane, holders_of, jobs_in, lanes_at
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader
from coordinator.ops.search.jobs import pages, search

_PAGE = 1000
_DRAWN = 10_000  # lanes that are compared to find the longest lines
_UNPINNED = ("(-inf", "+inf")  # scores of jobs that wait, and of the first job if the lane has no pause or limit


def whole(store: Store, key: str, most: int, runs: int) -> Lane:
    """Read a lane with its first `most` jobs and its last `runs` ended jobs."""
    (lane,) = lanes_at(store, [key], most)
    return replace(lane, runs=search(store, runs, state=sorted(TERMINAL), key=key).jobs) if runs else lane


def lanes(
    store: Store, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = ""
) -> list[Lane]:  # fmt: skip
    """List the lanes that have jobs, or are paused, by key.

    `after`: the last key of the previous page. The time for a page does not depend on the number of lanes.
    """
    chosen: list[Lane] = []
    for keys in pages(store, stored_lane(prefix), after, min(most, _PAGE)):
        chosen += [lane for lane in lanes_at(store, keys, 1) if _there(lane) and state in (None, lane.state)]
        if len(chosen) >= most:
            break
    return chosen[:most]


@dataclass(frozen=True, slots=True)
class Lines:
    """The longest lines. `longest`: the lanes in which most jobs wait. `lanes`: how many lanes have more than one job.
    `looked`: how many of these were compared; if fewer than `lanes`, they were chosen at random.
    """

    longest: tuple[Lane, ...]
    lanes: int
    looked: int


def contended(store: Store, most: int) -> Lines:
    """Find the `most` lanes with the longest lines, in the set of all lanes with more than one job, which the Redis
    functions keep (rules/line.lua).
    """
    name = store.key("contended")
    count, drawn = store.read_many([("SCARD", name), ("SRANDMEMBER", name, _DRAWN)])
    keys = [key.decode() for key in drawn]
    counts = store.read_many([("ZCOUNT", store.key("line", key), *_UNPINNED) for key in keys]) if keys else []
    longest = [key for number, key in sorted(zip(counts, keys, strict=True), reverse=True)[:most] if number]
    return Lines(tuple(lanes_at(store, longest, 1)), count, len(keys))


def oldest(store: Store, lanes: Sequence[Lane]) -> dict[str, tuple[str, datetime | None]]:
    """Return, by key, the first job of each lane that has not started, and when it was submitted (None: unknown)."""
    lines = [("ZRANGEBYSCORE", store.key("line", lane.key), "(-inf", "+inf", "LIMIT", 0, 2) for lane in lanes]
    found = dict[str, str]()
    for lane, ids in zip(lanes, store.read_many(lines) if lines else (), strict=True):
        started = {holder.job_id for holder in lane.holders}
        waiting = [job_id for job_id in jobs_in(ids) if job_id not in started]
        if waiting:
            found[lane.key] = waiting[0]
    records = fields_of_many(store, [*found.values()], "submitted")
    instants = [FieldReader({"submitted": at or ""}).instant("submitted") for (at,) in records]
    return {key: (job_id, at) for (key, job_id), at in zip(found.items(), instants, strict=True)}


class HeldLock(NamedTuple):
    """A lane that plain code holds as a lock (`coordinator.lock`): the lane's key, and the holder."""

    key: str
    holder: Holder


def locks(store: Store, most: int) -> list[HeldLock]:
    """Read the first `most` lanes that plain code holds as locks, with their holders, by the end of their leases."""
    ids = [job_id.decode() for job_id in store.read("ZRANGE", store.key("locks"), 0, most - 1)]
    lanes = [keys.partition("\n")[0] for (keys,) in fields_of_many(store, ids, "keys")]
    known = holders_of(store, ids)
    return [HeldLock(lane, holder) for lane, job_id in zip(lanes, ids, strict=True) if (holder := known[job_id][1])]


def _there(lane: Lane) -> bool:
    """True if the lane is still to be listed: it may have become empty since its name was read."""
    return bool(lane.length) or lane.paused
