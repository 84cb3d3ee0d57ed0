"""Why all waits that waits: counts by code, with the longest wait of each and an example.

No record is scanned: Redis keeps the jobs of each state but `waiting` in a set, and the number of the others. The wait
and the example come from the first `_MOST` of them, by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.diagnosis.codes import REJECTED
from coordinator.diagnosis.fit import fit
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.jobs import record
from coordinator.store.times import instant
from coordinator.store.values import Json

_MOST = 200  # jobs or lanes of one kind that are looked at; of ready jobs five times as many
_INSTANTS = ("submitted", "joined", "readied", "started")
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
REASONS = {
    **dict.fromkeys(("waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim"), "slot"),
    **dict.fromkeys(("waiting.lane", "waiting.limit", "waiting.closed"), "lane"),
    "waiting.paused": "paused",
    "held": "held",
}
"""For what a job waits that is due, as metrics name it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """All jobs that wait for one reason.

    `longest`: seconds for which the `example` has waited, of those that were looked at the one that waited longest.
    `text`: what they do, for people. `facts`: for `waiting.node`, what the nodes lack that come nearest, with the
    number of jobs.
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Some jobs that wait for one reason.

    `jobs`: since when (ms) those wait that were looked at, and their ids; `whole`: that is all; `lacks`: what the nodes
    lack.
    """

    code: str
    count: int
    jobs: Sequence[tuple[int, str]]
    whole: bool
    lacks: str = ""


def why_summary(look: Snapshot) -> Summary:
    """Count all that waits."""
    parts = [*_of_states(look), *_ready(look), *_in_line(look, record.counts(look.store)["waiting"])]
    counts = Counter[str]()
    for part in parts:
        counts[part.code] += max(0, part.count)
    rows = tuple(
        _row(look, code, count, [part for part in parts if part.code == code])
        for code, count in counts.most_common()
        if count
    )
    return Summary(rows, counts.total(), instant(look.clock.wall), all(part.whole for part in parts))


def _row(look: Snapshot, code: str, count: int, parts: Sequence[_Part]) -> Waiting:
    at, job_id = min((job for part in parts for job in part.jobs), default=(None, None))
    longest = None if at is None else max(0.0, (look.clock.now - at) / 1000)
    lacks = Counter[str]()
    for part in parts:
        lacks[part.lacks] += part.count
    facts: Mapping[str, Json] = {"lacks": dict(lacks)} if code == "waiting.node" else {}
    return Waiting(code, count, longest, job_id, MEANS[code] + (f": {', '.join(lacks)}" if facts else ""), facts)


def _of_states(look: Snapshot) -> Iterator[_Part]:
    for state, code in _OF_STATES.items():
        total: int = look.store.read("SCARD", look.store.key("state", state))
        ids = _sample(look, "SRANDMEMBER", look.store.key("state", state))
        yield _Part(code, total, _dated(look, ids), total <= len(ids))


def _sample(look: Snapshot, command: str, key: str) -> list[str]:
    return [one.decode() for one in look.store.read(command, key, _MOST)]


def _dated(look: Snapshot, ids: Sequence[str]) -> list[tuple[int, str]]:
    """Since when each of these jobs waits (ms), and its id: since the last thing that happened to it."""
    dates = [[int(at) for at in instants if at.isdecimal()] for instants in look.fields(ids, *_INSTANTS)]
    return [(max(instants), job_id) for job_id, instants in zip(ids, dates, strict=True) if instants]


def _ready(look: Snapshot) -> Iterator[_Part]:
    total: int = look.store.read("SCARD", look.store.key("state", "ready"))
    found = look.ready(5 * _MOST)
    seen = sum(map(len, found.values()))
    for (kind, task), ids in found.items():
        judged, lacks = fit(look.living, kind.split("\n"), task), ""
        if judged.code == "waiting.node":
            code, about = judged.rejected[-1]
            lacks = f"{REJECTED[code]} {about['lacks']}".rstrip()
        yield _Part(judged.code, round(len(ids) * max(1.0, total / seen)), _dated(look, ids), total <= seen, lacks)


def _in_line(look: Snapshot, waiting: int) -> Iterator[_Part]:
    """Those that wait in lanes: first the lanes that operators paused or limited, then the others by chance."""
    key, left, known = look.store.key, waiting, set[str]()
    paused = _sample(look, "HRANDFIELD", key("paused"))
    limited = _sample(look, "HRANDFIELD", key("limits"))
    limits = look.store.read("HMGET", key("limits"), *limited) if limited else []
    closed = [lane for lane, limit in zip(limited, limits, strict=True) if (limit or b"1").startswith(b"0")]
    others = _sample(look, "ZRANDMEMBER", key("lanes"))
    sizes = look.store.read_many([("HLEN", key("paused")), ("HLEN", key("limits")), ("ZCARD", key("lanes"))])
    for code, lanes in (
        ("waiting.paused", paused),
        ("waiting.closed", closed),
        ("waiting.limit", limited),
        ("waiting.lane", others),
    ):
        count, jobs = _of_lines(look, [lane for lane in lanes if lane not in known])
        known |= set(lanes)
        count = left if code == "waiting.lane" else min(left, count)
        left -= count
        yield _Part(code, count, jobs, all(size <= _MOST for size in sizes))


def _of_lines(look: Snapshot, lanes: Sequence[str]) -> tuple[int, list[tuple[int, str]]]:
    """How many jobs wait in these lanes, and the first of each."""
    lines = [look.store.key("line", lane) for lane in lanes]
    behind = ("(-inf", "+inf")  # those that were started in a line with a mark stand at -inf, and so does the mark
    counted = look.store.read_many([("ZCOUNT", line, *behind) for line in lines])
    firsts = look.store.read_many([("ZRANGEBYSCORE", line, *behind, "LIMIT", 0, 2) for line in lines])
    heads = [job_id.decode() for first in firsts for job_id in first]
    states = [state for (state,) in look.fields(heads, "state")]
    waiting = [job_id for job_id, state in zip(heads, states, strict=True) if state == "waiting"]
    at_work = sum(state not in ("waiting", "") for state in states)
    return sum(counted) - at_work, _dated(look, waiting)
