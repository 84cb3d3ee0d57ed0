"""Counts why jobs wait: by the code of the cause, with the longest wait for each code, and an example.

It does not scan all records: Redis keeps the jobs of each state except `waiting` in a set, the ready jobs by task and
routing class, and a counter of the waiting jobs. Longest wait and example come from a sample of at most `_MOST` jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from coordinator.core.jobs import record
from coordinator.core.jobs.ready import ready_of
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.bundle import Bundle
from coordinator.core.store.client import Store
from coordinator.core.store.steps import quota_queue
from coordinator.core.store.times import instant
from coordinator.core.store.values import Json
from coordinator.ops.diagnosis.codes import REJECTED
from coordinator.ops.diagnosis.snapshot import Snapshot
from coordinator.ops.search.fit import fit
from coordinator.ops.search.quotas import code_of, places_in, units_in
from coordinator.ops.search.reasons import OF_STATE

_MOST = 200  # jobs or lanes of one kind that are read; of ready jobs five times as many
_COUNTED = 10_000  # in how many paused lanes, and queues of quotas, the jobs are counted
_BEHIND = ("(-inf", "+inf")  # those that were started in a line with a mark stand at -inf, and so does the mark
_LINED = ("waiting.paused", "waiting.lane")
_INSTANTS = ("submitted", "joined", "lacked", "readied", "started")
MEANS = {
    "waiting.lane": "stand behind another job of their key",
    "waiting.paused": "stand in a lane that an operator paused",
    "waiting.quota": "lack units of a quota that others use",
    "waiting.rate": "wait for the rate of a quota",
    "waiting.cooldown": "wait for a quota that cools down",
    "waiting.ready": "let ready jobs of their task go first, which no node has taken yet",
    "waiting.fleet": "are ready, and no node is alive",
    "waiting.node": "are ready, and no living node may take them",
    "waiting.slot": "are ready, and all slots of the nodes that may take them are taken",
    "waiting.claim": "are ready, and a node has room for them",
    "later.scheduled": "are scheduled for later",
    "later.sorter": "are held by a sorter",
    "later.collects": "collect calls until it is time",
    "blocked": "are to run after other jobs or events",
    "later.retry": "failed, and are tried again",
    "parked.results": "wait for their sub-tasks",
    "held": "are held for an operator",
}
REASONS = {
    **dict.fromkeys(("waiting.fleet", "waiting.node", "waiting.slot", "waiting.claim", "waiting.ready"), "slot"),
    "waiting.lane": "lane",
    **dict.fromkeys(("waiting.quota", "waiting.rate", "waiting.cooldown"), "quota"),
    "waiting.paused": "paused",
    "held": "held",
    "blocked": "after",
}
"""Code -> what a job with this cause waits for, as the label `reason` of metrics names it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """All jobs that wait for the same reason, `code`.

    `example`: the job that has waited longest among the jobs that were read, and `longest`: the seconds of that wait;
    None: none was read. `text`: the reason for people, such as `are held by a sorter`. `facts`: only for
    `waiting.node`: what the most suitable nodes lack -> number of jobs.
    """

    code: str
    count: int
    longest: float | None
    example: str | None
    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """All jobs that wait, by reason, the most frequent reason first. `waiting`: the number of all these jobs.

    `complete`: False where there are more jobs or lanes than were read: then `longest` and `example` are those of a
    sample. `exact`: False where there are more than 10,000 paused lanes or quotas: then it is an estimate how the jobs
    that wait for a lane or a quota divide into reasons.
    """

    rows: tuple[Waiting, ...]
    waiting: int
    as_of: datetime
    complete: bool = True
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the jobs that wait for one reason.

    `ids`: jobs to read, some of which may not wait any more; `whole`: True if these are all. `lacks`: what nodes lack.
    """

    code: str
    count: int
    ids: Sequence[str]
    whole: bool
    lacks: str = ""


def why_summary(snapshot: Snapshot) -> Summary:
    """Count all jobs that wait, by reason."""
    bundle, known = Bundle(snapshot.store), snapshot.read()
    counted, ready = bundle.add(record.counts), bundle.add(lambda store: [*_ready(known.within(store))])
    kept, queued, stood = bundle.add(lambda store: [*_of_states(store)]), bundle.add(_of_quotas), bundle.add(_in_line)
    bundle.run()
    (quotas, all_quotas), (lined, all_lanes), left = queued.result(), stood.result(), counted.result()["waiting"]
    quotas, left = _at_most(left, quotas)
    paused, left = _at_most(left, lined[:1])
    exact = all_quotas and all_lanes
    parts = [*kept.result(), *ready.result(), *quotas, *paused, *(replace(part, count=left) for part in lined[1:])]
    since = _since(snapshot, sorted({job_id for part in parts for job_id in part.ids}))
    counts = Counter[str]()
    for part in parts:
        counts[part.code] += max(0, part.count)
    rows = tuple(
        _row(snapshot, code, count, [part for part in parts if part.code == code], since)
        for code, count in counts.most_common()
        if count
    )
    complete = all(part.whole for part in parts)
    return Summary(rows, counts.total(), instant(snapshot.clock.wall), complete, exact)


def _at_most(left: int, parts: Sequence[_Part]) -> tuple[list[_Part], int]:
    """Lower the counts of parts, in their order, so that all together have at most `left` jobs. Returns the parts, and
    how many jobs are left.
    """
    lowered = list[_Part]()
    for part in parts:
        lowered.append(replace(part, count=min(left, part.count)))
        left -= lowered[-1].count
    return lowered, left


def _row(
    snapshot: Snapshot, code: str, count: int, parts: Sequence[_Part], since: Mapping[str, tuple[str, int]]
) -> Waiting:
    known = [(since[job_id], job_id) for part in parts for job_id in part.ids if job_id in since]
    waiting = [(at, job_id) for (kind, at), job_id in known if code not in _LINED or kind == "waiting in line"]
    at, job_id = min(waiting, default=(None, None))
    longest = None if at is None else max(0.0, (snapshot.clock.now - at) / 1000)
    lacks = Counter[str]()
    for part in parts:
        lacks[part.lacks] += part.count
    facts: Mapping[str, Json] = {"lacks": dict(lacks)} if code == "waiting.node" else {}
    return Waiting(code, count, longest, job_id, MEANS[code] + (f": {', '.join(lacks)}" if facts else ""), facts)


def _since(snapshot: Snapshot, ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return for each job its state, and the ms of its last event, since which it waits. Jobs without are left out."""
    known = {}
    for job_id, (state, lack, *instants) in zip(ids, snapshot.fields(ids, "state", "lack", *_INSTANTS), strict=True):
        if dates := [int(at) for at in instants if at.isdecimal()]:
            known[job_id] = "waiting in line" if state == "waiting" and not lack else state, max(dates)
    return known


def _of_states(store: Store) -> Iterator[_Part]:
    names = [store.key("state", state) for state in OF_STATE]
    commands = [command for name in names for command in (("SCARD", name), ("SRANDMEMBER", name, _MOST))]
    replies = store.read_many(commands)
    for code, total, members in zip(OF_STATE.values(), replies[::2], replies[1::2], strict=True):
        yield _Part(code, total, _decoded(members), total <= len(members))


def _decoded(members: Sequence[bytes]) -> list[str]:
    return [member.decode() for member in members]


def _ready(snapshot: Snapshot) -> Iterator[_Part]:
    most = max(10, 5 * _MOST // max(1, len(snapshot.ready)))
    for ready, ids in zip(snapshot.ready, ready_of(snapshot.store, snapshot.ready, most), strict=True):
        judged, lacks = fit(snapshot.living, ready.kind.split("\n"), ready.task), ""
        if judged.code == "waiting.node":
            code, about = judged.rejected[-1]
            lacks = f"{REJECTED[code]} {about['lacks']}".rstrip()
        yield _Part(judged.code, ready.count, ids, ready.count <= len(ids), lacks)


def _of_quotas(store: Store) -> tuple[list[_Part], bool]:
    """Return the jobs that lack a quota, by why the head of its queue waits; and True if all of them were counted."""
    most = _COUNTED
    number, drawn = store.read_many([("ZCARD", store.key("quotas")), ("ZRANDMEMBER", store.key("quotas"), most)])
    names = [name.decode() for name in drawn]
    if not names:
        return [], True
    quotas = {quota.name: quota for quota in QuotaClient(store).read_many(names)}
    queues = {name: quota.waiting for name, quota in quotas.items() if quota.waiting}
    firsts = store.read_many([quota_queue.looking(store, name, 1) for name in [*queues][:_MOST]]) if queues else []
    first = {name: places_in(reply)[0][1] for name, reply in zip(queues, firsts, strict=False) if reply}
    uses = dict(zip(first, record.fields_of_many(store, [*first.values()], "uses"), strict=True))
    codes = {name: code_of(quotas[name], units_in(uses[name][0], name)) for name in first}
    whole = len(queues) <= _MOST and number <= most
    return [
        _Part(codes.get(name, "waiting.quota"), count, [first[name]] if name in first else [], whole)
        for name, count in queues.items()
    ], whole


def _in_line(store: Store) -> tuple[list[_Part], bool]:
    """Return the jobs that wait in lanes, first in those that operators paused, then in the others, which are not
    counted; and True if all paused lanes were counted.
    """
    key, read_many = store.key, store.read_many
    sizes = [("HLEN", key("paused")), ("SCARD", key("contended"))]
    drawn = [("HRANDFIELD", key("paused"), _COUNTED), ("SRANDMEMBER", key("contended"), _MOST)]
    *numbers, paused, others = read_many([*sizes, *drawn])
    marked = [key("line", lane.decode()) for lane in paused]
    free = [key("line", lane.decode()) for lane in others if lane not in {*paused}]
    first = [*marked[:_MOST], *free]
    commands = [("ZRANGEBYSCORE", line, *_BEHIND, "LIMIT", "0", "2") for line in first]
    replies = read_many([*commands, *(("ZCOUNT", line, *_BEHIND) for line in marked)])
    heads, whole = dict(zip(first, replies, strict=False)), all(number <= _MOST for number in numbers)
    counts = [sum(replies[len(first) :]), 0]
    parts = [
        _Part(code, count, [job_id for line in lines[:_MOST] for job_id in _decoded(heads[line])], whole)
        for code, count, lines in zip(_LINED, counts, (marked, free), strict=True)
    ]
    return parts, numbers[0] <= _COUNTED
