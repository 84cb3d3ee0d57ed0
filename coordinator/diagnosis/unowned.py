"""Finds what no living process owns any more, and what stands still though nothing holds it up.

Reads the first thousand entries of sets, lines and leases, never all records. Redis goes on meanwhile, so a single look
may see one thing before a step and another after it: `doctor` looks twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from coordinator.diagnosis.codes import command
from coordinator.diagnosis.finding import Finding
from coordinator.fleet.nodes import Node
from coordinator.jobs import record
from coordinator.jobs.ready import id_in
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.validation import shown_lane
from coordinator.lanes import view
from coordinator.lanes.view import Lane
from coordinator.store.client import Store
from coordinator.store.reading import text_in

MOST = 1000  # lanes, leases and jobs of a state that are looked at
_FEW, _SLOTS = 10, 100  # jobs in front of a lane that are looked at: of most lanes, and of those with a greater limit
_INDEXED = ("scheduled", "collected", "retrying", "parked", "held", "rolling_back")


def of_owners(store: Store, nodes: Sequence[Node]) -> Iterator[Finding]:
    """`nodes`: all that no sweep has removed."""
    living = [node.name for node in nodes if node.alive]
    sorted_sets = [store.key(name) for name in ("lanes", "leases", "ready-by-task")]
    sets = [store.key("state", state) for state in _INDEXED]
    asked: list[tuple[str, ...]] = [("ZRANGE", name, "0", str(MOST - 1)) for name in sorted_sets]
    asked += [("SSCAN", name, "0", "COUNT", str(MOST)) for name in sets]
    asked += [(count, name) for count, names in (("ZCARD", sorted_sets), ("SCARD", sets)) for name in names]
    work = [("HGETALL", store.key("work", name)) for name in living]
    lanes, leases, ready, *replies = store.read_many([*asked, *work])
    pages, replies = [page[:MOST] for _, page in replies[: len(sets)]], replies[len(sets) :]
    for what, size in zip(
        ("lanes", "leases", *(f"{state} jobs" for state in ("ready", *_INDEXED))), replies, strict=False
    ):
        yield from _rest(what, size)
    yield from _of_lanes(store, [key.decode() for key in lanes])
    yield from _of_leases(store, [job_id.decode() for job_id in leases], {*living})
    yield from _of_slots(store, dict(zip(living, replies[len(sorted_sets) + len(sets) :], strict=True)))
    members = [("ready", "ZREM", sorted_sets[2], member) for member in ready]
    for state, name, page in zip(_INDEXED, sets, pages, strict=True):
        members += [(state, "SREM", name, member) for member in page]
    yield from _of_indexes(store, members)


def _of_lanes(store: Store, keys: Sequence[str]) -> Iterator[Finding]:
    lanes = view.lanes_at(store, keys, _FEW)
    lanes = [one for one in lanes if one.limit <= _FEW] + view.lanes_at(
        store, [one.key for one in lanes if one.limit > _FEW], _SLOTS
    )
    fronts = [one.jobs[: max(one.limit, len(one.holders), 1)] for one in lanes]
    ids = sorted({job_id for front in fronts for job_id in front})
    jobs = dict(zip(ids, record.fields_of_many(store, ids, "state", "token", "keys", "exclusive"), strict=True))
    locks, stuck = _locks(store, [name for lane in lanes for name in _slots(store, lane)]), dict[str, str]()
    for lane, front in zip(lanes, fronts, strict=True):
        own = {name: locks[name] for name in _slots(store, lane) if name in locks}
        yield from _of_locks(store, lane.key, own, {jobs[job_id][1] for job_id in front})
        yield from (_ghost(store, lane.key, job_id) for job_id in front if not _open(jobs[job_id][0]))
        waiting = next((job_id for job_id in front if jobs[job_id][0] == "waiting"), None)
        if not waiting or view.why_closed(lane) or any(jobs[job_id][3] for job_id in front):
            continue
        stuck[lane.key] = waiting
    first = _first(store, {job_id: jobs[job_id][2].split("\n") for job_id in stuck.values()})
    for key, waiting in stuck.items():
        if waiting in first:
            said = f"job {waiting} waits in front of it, and nothing holds it"
            values = {"id": waiting, "to": "front"}
            fix = command("move", values)
            yield Finding("error", "lane.stuck", f"lane {shown_lane(key)}", said, fix, "move", values)


def _slots(store: Store, lane: Lane) -> list[str]:
    """The names of the locks of its slots."""
    others = range(2, min(lane.limit, _SLOTS) + 1)
    return [store.key("lock", lane.key), *(store.key("slot", str(slot), lane.key) for slot in others)]


def _locks(store: Store, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Value and ms to live of those that are there."""
    if not names:
        return {}
    replies = store.read_many([part for name in names for part in (("GET", name), ("PTTL", name))])
    found = zip(names, replies[::2], replies[1::2], strict=True)
    return {name: (value, ttl) for name, value, ttl in found if value is not None}


def _of_locks(
    store: Store, key: str, locks: Mapping[str, tuple[bytes, int]], tokens: set[str]
) -> Iterator[Finding]:  # fmt: skip
    lane = f"lane {shown_lane(key)}"
    for name, (value, ttl) in locks.items():
        token, way_out = value.decode().rpartition(" ")[0], f"{store.redis_cli} DEL {quote(name)}"
        if ttl == -1:
            yield Finding("error", "key.no-ttl", lane, f"its lock has no end: {name}", way_out)
        if token not in tokens:
            said = f"a lock of the token {token} is there, and no job in front has that: it ends with its ttl"
            yield Finding("warning", "slot.dead-owner", lane, said, way_out)


def _first(store: Store, keys: Mapping[str, Sequence[str]]) -> set[str]:
    """The jobs that are in front of all their lines; of several, one with marks has none in front. `keys`: by job."""
    lanes = sorted({key for own in keys.values() if len(own) > 1 for key in own})
    heads = store.read_many([("ZRANGE", store.key("line", key), "0", "0") for key in lanes]) if lanes else []
    front = {key: head[0].decode() for key, head in zip(lanes, heads, strict=True) if head}
    return {job_id for job_id, own in keys.items() if len(own) == 1 or all(front.get(key) == job_id for key in own)}


def _open(state: str) -> bool:
    return bool(state) and state not in TERMINAL


def _ghost(store: Store, key: str, job_id: str) -> Finding:
    said = f"job {job_id} is in front of it, and is over or has no record: nothing behind it starts"
    way_out = f"{store.redis_cli} ZREM {quote(store.key('line', key))} {quote(job_id)}"
    again = " && ".join(command(act, {"key": key}) for act in ("pause", "resume"))
    return Finding("error", "line.ghost", f"lane {shown_lane(key)}", said, f"{way_out} && {again}")


def _of_leases(store: Store, ids: Sequence[str], living: set[str]) -> Iterator[Finding]:
    jobs = zip(ids, record.fields_of_many(store, ids, "state", "node"), strict=True)
    for job_id, (state, node) in jobs:
        if state == "running" and node not in living:
            said = f"it runs on node {node}, which is not alive: another takes it once its lease has ended"
            yield Finding("warning", "job.dead-node", f"job {job_id}", said, f"coordinator why -- {quote(job_id)}")


def _of_slots(store: Store, work: Mapping[str, Mapping[bytes, bytes]]) -> Iterator[Finding]:
    """Slots of nodes that are noted as taken, though their jobs are over or went elsewhere. `work`: by node."""
    taken = [
        (node, *text_in(entry).split(" ", 2)) for node, entries in work.items()
        for entry in entries.values() if entry.count(b" ") == 2
    ]  # fmt: skip
    jobs = record.fields_of_many(store, [job_id for *_, job_id in taken], "state", "token")
    for (node, token, _, job_id), (state, current) in zip(taken, jobs, strict=True):
        if state != "running" or token != current:
            said = f"a slot is taken for job {job_id} under the token {token}, which is not at work there"
            way_out = f"{command('drain', {'name': node})}  # then start its worker again"
            yield Finding("warning", "slot.no-job", f"node {node}", said, way_out)


def _of_indexes(store: Store, found: Sequence[tuple[str, str, str, bytes]]) -> Iterator[Finding]:
    """`found`: the state of an index, the command that removes from it, its name, and one of its members."""
    states = record.fields_of_many(store, [id_in(member) for *_, member in found], "state")
    for (state, remove, name, member), (now,) in zip(found, states, strict=True):
        if not _open(now):
            said = f"it is counted as {state}, and is over or has no record"
            way_out = f"{store.redis_cli} {remove} {quote(name)} {quote(member.decode())}"
            yield Finding("warning", "index.ghost", f"job {id_in(member)}", said, way_out)


def _rest(what: str, count: int) -> Iterator[Finding]:
    if count > MOST:
        yield Finding("info", "doctor.part", what, f"the first {MOST} of {count} were looked at", "")
