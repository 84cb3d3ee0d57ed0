"""Why all waits that waits: counts by code, with the longest wait of each and an example.

No record is scanned: Redis keeps the jobs of each state but `waiting` in a set, the ready ones by task and class, and
the number of the others. The wait and the example come from `_MOST` of them.
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
from coordinator.jobs.ready import ready_of
from coordinator.store.times import instant
from coordinator.store.values import Json

_MOST = 200  # jobs or lanes of one kind that are looked at; of ready jobs five times as many
_COUNTED = 10_000  # lanes with a mark, the jobs in which are counted
_BEHIND = ("(-inf", "+inf")  # those that were started in a line with a mark stand at -inf, and so does the mark
_LINED = ("waiting.paused", "waiting.closed", "waiting.limit", "waiting.lane")
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
    a part. `exact`: False where more than 10,000 lanes are paused, or as many have a limit: then the counts of those
    that wait in line are estimates by reason.
    """

    rows: tuple[Waiting, ...]
    waiting: int
    as_of: datetime
    complete: bool = True
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Jobs that wait for one reason.

    `ids`: of those that are looked at, some of which may not wait; `whole`: that is all; `lacks`: what the nodes lack.
    """

    code: str
    count: int
    ids: Sequence[str]
    whole: bool
    lacks: str = ""


def why_summary(look: Snapshot) -> Summary:
    """Count all that waits."""
    lined, exact = _in_line(look, record.counts(look.store)["waiting"])
    parts = [*_of_states(look), *_ready(look), *lined]
    since = _since(look, sorted({job_id for part in parts for job_id in part.ids}))
    counts = Counter[str]()
    for part in parts:
        counts[part.code] += max(0, part.count)
    rows = tuple(
        _row(look, code, count, [part for part in parts if part.code == code], since)
        for code, count in counts.most_common()
        if count
    )
    complete = all(part.whole for part in parts)
    return Summary(rows, counts.total(), instant(look.clock.wall), complete, exact)


def _row(
    look: Snapshot, code: str, count: int, parts: Sequence[_Part], since: Mapping[str, tuple[str, int]]
) -> Waiting:
    known = [(since[job_id], job_id) for part in parts for job_id in part.ids if job_id in since]
    waiting = [(at, job_id) for (state, at), job_id in known if code not in _LINED or state == "waiting"]
    at, job_id = min(waiting, default=(None, None))
    longest = None if at is None else max(0.0, (look.clock.now - at) / 1000)
    lacks = Counter[str]()
    for part in parts:
        lacks[part.lacks] += part.count
    facts: Mapping[str, Json] = {"lacks": dict(lacks)} if code == "waiting.node" else {}
    return Waiting(code, count, longest, job_id, MEANS[code] + (f": {', '.join(lacks)}" if facts else ""), facts)


def _since(look: Snapshot, ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The state of each of these jobs, and since when (ms) it waits: since the last thing that happened to it."""
    found = {}
    for job_id, (state, *instants) in zip(ids, look.fields(ids, "state", *_INSTANTS), strict=True):
        if dates := [int(at) for at in instants if at.isdecimal()]:
            found[job_id] = state, max(dates)
    return found


def _of_states(look: Snapshot) -> Iterator[_Part]:
    names = [look.store.key("state", state) for state in _OF_STATES]
    commands = [command for name in names for command in (("SCARD", name), ("SRANDMEMBER", name, _MOST))]
    replies = look.store.read_many(commands)
    for code, total, members in zip(_OF_STATES.values(), replies[::2], replies[1::2], strict=True):
        yield _Part(code, total, _decoded(members), total <= len(members))


def _decoded(members: Sequence[bytes]) -> list[str]:
    return [member.decode() for member in members]


def _ready(look: Snapshot) -> Iterator[_Part]:
    most = max(10, 5 * _MOST // max(1, len(look.ready)))
    for one, ids in zip(look.ready, ready_of(look.store, look.ready, most), strict=True):
        judged, lacks = fit(look.living, one.kind.split("\n"), one.task), ""
        if judged.code == "waiting.node":
            code, about = judged.rejected[-1]
            lacks = f"{REJECTED[code]} {about['lacks']}".rstrip()
        yield _Part(judged.code, one.count, ids, one.count <= len(ids), lacks)


def _in_line(look: Snapshot, waiting: int) -> tuple[list[_Part], bool]:
    """Those that wait in lanes: first the lanes that operators paused or limited, then the others; and whether the
    former were all counted.
    """
    key, read_many = look.store.key, look.store.read_many
    sizes = [("HLEN", key("paused")), ("HLEN", key("limits")), ("SCARD", key("contended"))]
    drawn = [("HRANDFIELD", key("paused"), _COUNTED), ("HRANDFIELD", key("limits"), _COUNTED)]
    *numbers, paused, limited, others = read_many([*sizes, *drawn, ("SRANDMEMBER", key("contended"), _MOST)])
    limits = look.store.read("HMGET", key("limits"), *limited) if limited else []
    closed = [lane for lane, limit in zip(limited, limits, strict=True) if (limit or b"1").startswith(b"0")]
    lanes, known = dict[str, list[str]](), set[bytes]()
    for code, some in zip(_LINED, (paused, closed, limited, others), strict=True):
        lanes[code] = [look.store.key("line", lane.decode()) for lane in some if lane not in known]
        known |= set(some)
    first = [line for lines in lanes.values() for line in lines[:_MOST]]
    marked = [line for code, lines in lanes.items() if code != "waiting.lane" for line in lines]
    asked = [("ZRANGEBYSCORE", line, *_BEHIND, "LIMIT", "0", "2") for line in first]
    replies = read_many([*asked, *(("ZCOUNT", line, *_BEHIND) for line in marked)])
    heads, counted = dict(zip(first, replies, strict=False)), dict(zip(marked, replies[len(first) :], strict=True))
    parts, left, whole = list[_Part](), waiting, all(number <= _MOST for number in numbers)
    for code, lines in lanes.items():
        count = left if code == "waiting.lane" else min(left, sum(counted[line] for line in lines))
        left -= count
        ids = [job_id for line in lines[:_MOST] for job_id in _decoded(heads[line])]
        parts.append(_Part(code, count, ids, whole))
    return parts, all(number <= _COUNTED for number in numbers[:2])
