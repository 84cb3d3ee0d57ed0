"""Finds what no living process owns any more, and what stands still though nothing holds it up.

Reads the first thousand entries of sets, lines and leases, never all records. Redis goes on meanwhile, so a single look
may see one thing before a step and another after it: `doctor` looks twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from coordinator.diagnosis.codes import command
from coordinator.diagnosis.finding import Finding
from coordinator.fleet.nodes import Node
from coordinator.jobs import record
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import TERMINAL
from coordinator.lanes.view import MARKS, PAUSED, limit_in
from coordinator.store.client import Store
from coordinator.store.reading import text_in
from coordinator.store.wire import Arg

MOST = 1000  # lanes, leases and jobs of a state that are looked at
_SLOTS = 100  # of a lane
_INDEXED = ("ready", "scheduled", "collected", "retrying", "parked", "held", "rolling_back")


def of_owners(store: Store, nodes: Sequence[Node]) -> Iterator[Finding]:
    """`nodes`: all that no sweep has removed."""
    yield from _of_lanes(store)
    yield from _of_leases(store, {node.name for node in nodes if node.alive})
    yield from _of_slots(store, [node for node in nodes if node.alive])
    yield from _of_indexes(store)


@dataclass(slots=True)
class _Front:
    """The front of a lane. `started`: ids that are pinned there, or the first in line; `first`: the next one to start,
    where one may. `locks`: of the lane's slots, name -> (value, ms to live).
    """

    key: str
    started: list[str]
    first: str | None
    locks: dict[str, tuple[bytes, int]]


def _of_lanes(store: Store) -> Iterator[Finding]:
    keys = [key.decode() for key in store.read("ZRANGE", store.key("lanes"), 0, MOST - 1)]
    yield from _rest("lanes", store.read("ZCARD", store.key("lanes")))
    fronts = list(_fronts(store, keys))
    ids = sorted({job_id for front in fronts for job_id in (*front.started, front.first) if job_id})
    names = ("state", "token", "keys", "exclusive")
    jobs = dict(zip(ids, record.fields_of_many(store, ids, *names), strict=True))
    for front in fronts:
        yield from _of_locks(store, front, {jobs[job_id][1] for job_id in front.started})
        yield from (_ghost(store, front.key, job_id) for job_id in front.started if not _open(jobs[job_id][0]))
        state, _, lanes, exclusive = jobs[front.first] if front.first else ("", "", "", "")
        if front.first and state == "waiting" and not exclusive and _is_first(store, front.first, lanes.split("\n")):
            said = f"job {front.first} waits in front of it, and nothing holds it"
            values = {"id": front.first, "to": "front"}
            fix = command("move", values)
            yield Finding("error", "lane.stuck", f"lane {shown_lane(front.key)}", said, fix, "move", values)


def _fronts(store: Store, keys: Sequence[str]) -> Iterator[_Front]:
    if not keys:
        return
    asked: list[Sequence[Arg]] = []
    for key in keys:
        line = store.key("line", key)
        asked += [("ZRANGEBYSCORE", line, "-inf", "-inf", "LIMIT", 0, _SLOTS + 2), ("ZRANGE", line, 0, 0)]
        asked += [("HGET", store.key("limits"), key), ("ZRANGEBYSCORE", line, "(-inf", "+inf", "LIMIT", 0, 1)]
    replies = store.read_many(asked)
    rows = [replies[at : at + 4] for at in range(0, len(replies), 4)]
    limits = [limit_in(limit)[0] for _, _, limit, _ in rows]
    names = [_names(store, key, min(limit, _SLOTS)) for key, limit in zip(keys, limits, strict=True)]
    locks = _locks(store, [name for several in names for name in several])
    for key, (pinned, head, _, following), limit, own in zip(keys, rows, limits, names, strict=True):
        marks, started = [mark for mark in MARKS if mark in pinned], [one for one in pinned if one not in MARKS]
        first = head
        if marks:  # the lane is paused, or has a limit
            first = [] if PAUSED in marks or len(started) >= limit else following
        else:
            started = started or head
        own_locks = {name: locks[name] for name in own if name in locks}
        ids = [job_id.decode() for job_id in started]
        yield _Front(key, ids, first[0].decode() if first else None, own_locks)


def _names(store: Store, key: str, limit: int) -> list[str]:
    return [store.key("lock", key), *(store.key("slot", str(slot), key) for slot in range(2, limit + 1))]


def _locks(store: Store, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    replies = store.read_many([part for name in names for part in (("GET", name), ("PTTL", name))])
    found = zip(names, replies[::2], replies[1::2], strict=True)
    return {name: (value, ttl) for name, value, ttl in found if value is not None}


def _of_locks(store: Store, front: _Front, tokens: set[str]) -> Iterator[Finding]:
    lane = f"lane {shown_lane(front.key)}"
    for name, (value, ttl) in front.locks.items():
        token, way_out = value.decode().rpartition(" ")[0], f"{store.redis_cli} DEL {quote(name)}"
        if ttl == -1:
            yield Finding("error", "key.no-ttl", lane, f"its lock has no end: {name}", way_out)
        if token not in tokens:
            said = f"a lock of the token {token} is there, and no job in front has that: it ends with its ttl"
            yield Finding("warning", "slot.dead-owner", lane, said, way_out)


def _is_first(store: Store, job_id: str, keys: Sequence[str]) -> bool:
    """True if the job is in front of all its lines. Those of several lanes with marks are left out."""
    if len(keys) == 1:
        return True
    heads = store.read_many([("ZRANGE", store.key("line", key), 0, 0) for key in keys])
    return all(head and head[0].decode() == job_id for head in heads)


def _open(state: str) -> bool:
    return bool(state) and state not in TERMINAL


def _ghost(store: Store, key: str, job_id: str) -> Finding:
    said = f"job {job_id} is in front of it, and is over or has no record: nothing behind it starts"
    way_out = f"{store.redis_cli} ZREM {quote(store.key('line', key))} {quote(job_id)}"
    again = " && ".join(command(act, {"key": key}) for act in ("pause", "resume"))
    return Finding("error", "line.ghost", f"lane {shown_lane(key)}", said, f"{way_out} && {again}")


def _of_leases(store: Store, living: set[str]) -> Iterator[Finding]:
    ids = [job_id.decode() for job_id in store.read("ZRANGE", store.key("leases"), 0, MOST - 1)]
    yield from _rest("leases", store.read("ZCARD", store.key("leases")))
    jobs = zip(ids, record.fields_of_many(store, ids, "state", "node"), strict=True)
    for job_id, (state, node) in jobs:
        if state == "running" and node not in living:
            said = f"it runs on node {node}, which is not alive: another takes it once its lease has ended"
            yield Finding("warning", "job.dead-node", f"job {job_id}", said, f"coordinator why -- {quote(job_id)}")


def _of_slots(store: Store, living: Sequence[Node]) -> Iterator[Finding]:
    """Slots of nodes that are noted as taken, though their jobs are over or went elsewhere."""
    work = store.read_many([("HGETALL", store.key("work", node.name)) for node in living]) if living else []
    taken = [
        (node.name, *text_in(entry).split(" ", 2)) for node, entries in zip(living, work, strict=True)
        for entry in entries.values() if entry.count(b" ") == 2
    ]  # fmt: skip
    jobs = record.fields_of_many(store, [job_id for *_, job_id in taken], "state", "token")
    for (node, token, _, job_id), (state, current) in zip(taken, jobs, strict=True):
        if state != "running" or token != current:
            said = f"a slot is taken for job {job_id} under the token {token}, which is not at work there"
            way_out = f"{command('drain', {'name': node})}  # then start its worker again"
            yield Finding("warning", "slot.no-job", f"node {node}", said, way_out)


def _of_indexes(store: Store) -> Iterator[Finding]:
    for state in _INDEXED:
        name = store.key("state", state)
        _, page = store.read("SSCAN", name, 0, "COUNT", MOST)
        ids = [job_id.decode() for job_id in page][:MOST]
        jobs: Any = zip(ids, record.fields_of_many(store, ids, "state"), strict=True)
        for job_id, (now,) in jobs:
            if not _open(now):
                said = f"it is counted as {state}, and is over or has no record"
                way_out = f"{store.redis_cli} SREM {quote(name)} {quote(job_id)}"
                yield Finding("warning", "index.ghost", f"job {job_id}", said, way_out)


def _rest(what: str, count: int) -> Iterator[Finding]:
    if count > MOST:
        yield Finding("info", "doctor.part", what, f"the first {MOST} of {count} were looked at", "")
