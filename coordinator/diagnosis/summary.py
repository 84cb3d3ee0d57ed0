"""Why all waits that waits: counts by code, with the longest wait of each and an example.

No record is scanned: Redis keeps the jobs of each state but `waiting` in a set, and the number of the others. The wait
and the example come from the first `_MOST` of them, by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.diagnosis.codes import REJECTED
from coordinator.diagnosis.fit import fit
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.jobs import record
from coordinator.store.times import instant
from coordinator.store.values import Json

_MOST = 200  # jobs or lanes of one kind that are looked at; of ready jobs five times as many
_OF_STATES = {
    "scheduled": "later.scheduled",
    "collected": "later.sorter",
    "retrying": "later.retry",
    "parked": "parked.results",
    "held": "held",
}
MEANS = {
    "waiting.lane": "stand behind another job of their key",
    "waiting.limit": "stand in a lane whose limit is used up",
    "waiting.paused": "stand in a lane that an operator paused",
    "waiting.closed": "stand in a lane with the limit 0",
    "waiting.fleet": "are ready, and no node is alive",
    "waiting.node": "are ready, and no living node may take them",
    "waiting.slot": "are ready, and all slots of the nodes that may take them are taken",
    "waiting.claim": "are ready, and a node has room for them",
    "later.scheduled": "are scheduled for later",
    "later.sorter": "are held by a sorter",
    "later.retry": "failed, and are tried again",
    "parked.results": "wait for their sub-tasks",
    "held": "are held for an operator",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """All jobs that wait for one reason.

    `longest`: seconds since the submit of the oldest, the `example`. `text`: what they do, for people. `facts`: for
    `waiting.node`, what the nodes lack that come nearest, with the number of jobs.
    """

    code: str
    count: int
    longest: float | None
    example: str | None
    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """All that waits, the most frequent reason first.

    `complete`: False where there are more jobs or lanes than were looked at: then `longest` and `example` are those of
    a part, and the counts of lanes and of ready jobs by reason are estimates.
    """

    rows: tuple[Waiting, ...]
    waiting: int
    as_of: datetime
    complete: bool = True


class _Rows:
    """Collects the counts by code."""

    def __init__(self, look: Snapshot) -> None:
        self.look = look
        self.complete = True
        self.count: dict[str, int] = {}
        self.oldest: dict[str, tuple[int, str]] = {}
        self.lacks: dict[str, int] = {}

    def add(self, code: str, count: int, jobs: Iterable[tuple[str, str]]) -> None:
        """`jobs`: id and `submitted` of those that were looked at."""
        if count > 0:
            self.count[code] = self.count.get(code, 0) + count
        dated = [(int(at), job_id) for job_id, at in jobs if at.isdecimal()]
        if dated:
            self.oldest[code] = min([*dated, *([self.oldest[code]] if code in self.oldest else [])])

    def rows(self) -> tuple[Waiting, ...]:
        return tuple(self._row(code) for code in sorted(self.count, key=lambda code: -self.count[code]))

    def _row(self, code: str) -> Waiting:
        at, job_id = self.oldest.get(code, (None, None))
        longest = None if at is None else max(0.0, (self.look.clock.now - at) / 1000)
        facts: Mapping[str, Json] = {"lacks": dict(self.lacks)} if code == "waiting.node" else {}
        lacks = f": {', '.join(self.lacks)}" if facts and self.lacks else ""
        return Waiting(code, self.count[code], longest, job_id, MEANS[code] + lacks, facts)


def why_summary(look: Snapshot) -> Summary:
    """Count all that waits."""
    rows = _Rows(look)
    for state, code in _OF_STATES.items():
        total: int = look.store.read("SCARD", look.store.key("state", state))
        ids = _sample(look, "SRANDMEMBER", look.store.key("state", state))
        rows.add(code, total, _dated(look, ids))
        rows.complete &= total <= len(ids)
    _ready(look, rows)
    _in_line(look, rows, record.counts(look.store)["waiting"])
    found = rows.rows()
    return Summary(found, sum(row.count for row in found), instant(look.clock.wall), rows.complete)


def _sample(look: Snapshot, command: str, key: str) -> list[str]:
    return [one.decode() for one in look.store.read(command, key, _MOST)]


def _dated(look: Snapshot, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Id and `submitted` of each."""
    return [(job_id, at) for job_id, (at,) in zip(ids, look.fields(ids, "submitted"), strict=True)]


def _ready(look: Snapshot, rows: _Rows) -> None:
    total: int = look.store.read("SCARD", look.store.key("state", "ready"))
    found = look.ready(5 * _MOST)
    seen = sum(map(len, found.values()))
    rows.complete &= total <= seen
    for (kind, task), ids in found.items():
        judged = fit(look.living, kind.split("\n"), task)
        count = round(len(ids) * max(1.0, total / seen))
        rows.add(judged.code, count, _dated(look, ids))
        if judged.code == "waiting.node":
            code, about = judged.rejected[-1]
            what = f"{REJECTED[code]} {about['lacks']}".rstrip()
            rows.lacks[what] = rows.lacks.get(what, 0) + count


def _in_line(look: Snapshot, rows: _Rows, waiting: int) -> None:
    """Those that wait in lanes: first the lanes that operators paused or limited, then the others by chance."""
    key, left, known = look.store.key, waiting, set[str]()
    paused = _sample(look, "HRANDFIELD", key("paused"))
    limited = _sample(look, "HRANDFIELD", key("limits"))
    limits = look.store.read("HMGET", key("limits"), *limited) if limited else []
    closed = [lane for lane, limit in zip(limited, limits, strict=True) if (limit or b"1").startswith(b"0")]
    others = _sample(look, "ZRANDMEMBER", key("lanes"))
    for code, lanes in (
        ("waiting.paused", paused),
        ("waiting.closed", closed),
        ("waiting.limit", limited),
        ("waiting.lane", others),
    ):
        count, jobs = _of_lines(look, [lane for lane in lanes if lane not in known])
        known |= set(lanes)
        count = left if code == "waiting.lane" else min(left, count)
        rows.add(code, count, jobs)
        left -= count
    sizes = look.store.read_many([("HLEN", key("paused")), ("HLEN", key("limits")), ("ZCARD", key("lanes"))])
    rows.complete &= all(size <= _MOST for size in sizes)


def _of_lines(look: Snapshot, lanes: Sequence[str]) -> tuple[int, list[tuple[str, str]]]:
    """How many jobs wait in these lanes, and id and `submitted` of the first of each."""
    lines = [look.store.key("line", lane) for lane in lanes]
    behind = ("(-inf", "+inf")  # those that were started in a line with a mark stand at -inf, and so does the mark
    counted = look.store.read_many([("ZCOUNT", line, *behind) for line in lines])
    firsts = look.store.read_many([("ZRANGEBYSCORE", line, *behind, "LIMIT", 0, 2) for line in lines])
    heads = [job_id.decode() for first in firsts for job_id in first]
    fields = look.fields(heads, "state", "submitted")
    waiting = [(job_id, at) for job_id, (state, at) in zip(heads, fields, strict=True) if state == "waiting"]
    at_work = sum(state not in ("waiting", "") for state, _ in fields)
    return sum(counted) - at_work, waiting
