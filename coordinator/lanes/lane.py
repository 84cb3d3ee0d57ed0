"""Lanes as people see them: line, limit, holder and marks at one moment. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from kombu.utils.json import loads

from coordinator.jobs.record import fields_of_many
from coordinator.jobs.states import LaneState
from coordinator.jobs.validation import utf8
from coordinator.store.client import Store
from coordinator.store.values import Act
from coordinator.store.wire import Arg

STATES = ("waiting", "ready", "running", "retrying", "parked", "held", "rolling_back", "empty")
_PAGE = 200
_MARKS = (b"\1limit", b"\1paused")  # stand in front of a line (rules/line.lua)


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane at one moment: the ids in line, the first one first (at most as many as asked for), and how many.

    `limit`: how many may run at once. `pause`, `limited`: {why, by, at (ms)} of the pause, and of the limit.
    `holder`, `state`: the first in line, and its state; others may run beside it where the limit is not 1.
    """

    key: str
    jobs: tuple[str, ...]
    length: int
    state: LaneState
    holder: str | None
    pause: Act | None = None
    limit: int = 1
    limited: Act | None = None

    @property
    def paused(self) -> bool:
        return self.pause is not None


def lanes(store: Store, prefix: str, state: LaneState | None, most: int, after: str) -> list[Lane]:
    """Lanes not empty, paused, or with a limit of their own, by key; a page costs the same however many there are."""
    found: list[Lane] = []
    for keys in _pages(store, prefix, after, min(most, _PAGE)):
        found += [lane for lane in look(store, keys, 1) if _there(lane) and state in (None, lane.state)]
        if len(found) >= most:
            break
    return found[:most]


def _pages(store: Store, prefix: str, after: str, size: int) -> Iterator[list[str]]:
    """Pages of the keys that begin with `prefix` and come behind `after`, in the order of their bytes."""
    first, last = utf8("prefix", prefix), utf8("after", after)
    name, begin, end = store.key("lanes"), b"[" + first, b"(" + first + b"\xff"
    if last >= first and last:
        begin = b"(" + last
    while True:
        page = store.read("ZRANGEBYLEX", name, begin, end, "LIMIT", 0, size)
        yield [key.decode() for key in page]
        if len(page) < size:
            return
        begin = b"(" + page[-1]


def look(store: Store, keys: Sequence[str], most: int) -> list[Lane]:
    """Each of these lanes, in two round trips."""
    if not keys:
        return []
    asked: list[Sequence[Arg]] = []
    for key in keys:
        line = store.key("line", key)
        asked += [("ZRANGE", line, 0, most + 1), ("ZCARD", line)]
        asked += [("HGET", store.key(kind), key) for kind in ("paused", "limits")]
    found = store.read_many(asked)
    firsts = [next((job_id.decode() for job_id in ids if job_id not in _MARKS), "") for ids in found[::4]]
    heads = fields_of_many(store, firsts, "state", "node")
    return [_lane(key, most, heads[i], *found[4 * i : 4 * i + 4]) for i, key in enumerate(keys)]


def _lane(
    key: str, most: int, head: Sequence[str], ids: list[bytes], length: int, pause: bytes | None, limits: bytes | None
) -> Lane:
    jobs = tuple(job_id.decode() for job_id in ids if job_id not in _MARKS)
    state, node = head
    holder = f"{jobs[0]} on {node}" if state == "running" and node else jobs[0] if state == "running" else None
    number, brace, who = (limits or b"1").decode().partition("{")
    return Lane(
        key=key,
        jobs=jobs[:most],
        length=length - (len(ids) - len(jobs)),
        state=cast(LaneState, state) if jobs else "empty",
        holder=holder,
        pause=loads(pause) if pause else None,
        limit=int(number),
        limited=loads(brace + who) if who else None,
    )


def _there(lane: Lane) -> bool:
    """It may have become empty since its name was read."""
    return bool(lane.length) or lane.paused or lane.limited is not None
