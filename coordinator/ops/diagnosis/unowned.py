"""Finds locks, leases, slots and index entries without a living owner, and lanes whose jobs do not start for no reason.

It reads the first thousand lanes, leases and jobs of each state, never all records. Redis functions run between two
reads, so a single scan may see one key before a change and another key after it: therefore `doctor` scans twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from coordinator.core.finding import Finding
from coordinator.core.fleet.nodes import Node
from coordinator.core.jobs import record
from coordinator.core.jobs.ready import id_in
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.lanes import view
from coordinator.core.store.bundle import Bundle, side_by_side
from coordinator.core.store.client import Store
from coordinator.core.store.reading import text_in
from coordinator.ops.diagnosis.codes import command

MOST = 1000  # how many lanes, leases, quotas, and jobs of one state are read at most
_FEW = 10  # how many first jobs of a lane are read
_INDEXED = ("scheduled", "collected", "collecting", "blocked", "retrying", "parked", "held", "rolling_back")


def of_owners(store: Store, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Find keys in Redis without a living owner. `nodes`: all nodes that no sweep has removed."""
    living = [node.name for node in nodes if node.alive]
    sorted_sets = [store.key(name) for name in ("lanes", "leases", "ready-by-task")]
    sets = [store.key("state", state) for state in _INDEXED]
    commands: list[tuple[str, ...]] = [("ZRANGE", name, "0", str(MOST - 1)) for name in sorted_sets]
    commands += [("SSCAN", name, "0", "COUNT", str(MOST)) for name in sets]
    commands += [(count, name) for count, names in (("ZCARD", sorted_sets), ("SCARD", sets)) for name in names]
    work = [("HGETALL", store.key("work", name)) for name in living]
    lanes, leases, ready, *replies = store.read_many([*commands, *work])
    pages, replies = [page[:MOST] for _, page in replies[: len(sets)]], replies[len(sets) :]  # SSCAN may return more
    for thing, size in zip(
        ("lanes", "leases", *(f"{state} jobs" for state in ("ready", *_INDEXED))), replies, strict=False
    ):
        yield from _rest(thing, size)
    claims = dict(zip(living, replies[len(sorted_sets) + len(sets) :], strict=True))
    members = [("ready", "ZREM", sorted_sets[2], member) for member in ready]
    for state, name, page in zip(_INDEXED, sets, pages, strict=True):
        members += [(state, "SREM", name, member) for member in page]
    yield from side_by_side(
        store,
        [
            lambda own: _of_lanes(own, [key.decode() for key in lanes]),
            lambda own: _of_leases(own, [job_id.decode() for job_id in leases], {*living}),
            lambda own: _of_slots(own, claims),
            lambda own: _of_indexes(own, members),
        ],
    )


def _of_lanes(store: Store, keys: Sequence[str]) -> Iterator[Finding]:
    lanes = view.lanes_at(store, keys, _FEW)
    fronts = [lane.jobs[: max(len(lane.holders), 1)] for lane in lanes]
    ids = sorted({job_id for front in fronts for job_id in front})
    names = ("state", "token", "keys", "lack")
    bundle, stuck = Bundle(store), dict[str, str]()
    read = bundle.add(lambda own: record.fields_of_many(own, ids, *names))
    found = bundle.add(lambda own: _locks(own, [store.key("lock", lane.key) for lane in lanes]))
    bundle.run()
    jobs, locks = dict(zip(ids, read.result(), strict=True)), found.result()
    for lane, front in zip(lanes, fronts, strict=True):
        own = {name: locks[name] for name in [store.key("lock", lane.key)] if name in locks}
        yield from _of_locks(store, lane.key, own, {jobs[job_id][1] for job_id in front})
        yield from (_ghost(store, lane.key, job_id) for job_id in front if not _open(jobs[job_id][0]))
        waiting = next((job_id for job_id in front if jobs[job_id][0] == "waiting" and not jobs[job_id][3]), None)
        if waiting and not lane.paused:
            stuck[lane.key] = waiting
    first = _first(store, {job_id: jobs[job_id][2].split("\n") for job_id in stuck.values()})
    for key, waiting in stuck.items():
        if waiting in first:
            message = f"job {waiting} waits in front of it, and nothing holds it"
            values = {"id": waiting, "to": "front"}
            fix = command("move", values)
            yield Finding("error", "lane.stuck", f"lane {shown_lane(key)}", message, fix, "move", values)


def _locks(store: Store, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Return the value and the ttl (ms, -1: none) of each lock that exists, by the name of its key."""
    if not names:
        return {}
    replies = store.read_many([part for name in names for part in (("GET", name), ("PTTL", name))])
    locks = zip(names, replies[::2], replies[1::2], strict=True)
    return {name: (value, ttl) for name, value, ttl in locks if value is not None}


def _of_locks(
    store: Store, key: str, locks: Mapping[str, tuple[bytes, int]], tokens: set[str]
) -> Iterator[Finding]:  # fmt: skip
    lane = f"lane {shown_lane(key)}"
    for name, (value, ttl) in locks.items():
        token, fix = value.decode().rpartition(" ")[0], f"{store.redis_cli} DEL {quote(name)}"
        if ttl == -1:
            yield Finding("error", "key.no-ttl", lane, f"its lock never expires: {name}", fix)
        if token not in tokens:
            message = f"its lock has the token {token}, which no job in front has: the lock ends with its ttl"
            yield Finding("warning", "slot.dead-owner", lane, message, fix)


def _first(store: Store, keys: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the jobs that are in front in all their lanes. `keys`: id of a job -> keys of its lanes.

    In a paused lane, a job with several lanes does not count as in front.
    """
    lanes = sorted({key for own in keys.values() if len(own) > 1 for key in own})
    heads = store.read_many([("ZRANGE", store.key("line", key), "0", "0") for key in lanes]) if lanes else []
    front = {key: head[0].decode() for key, head in zip(lanes, heads, strict=True) if head}
    return {job_id for job_id, own in keys.items() if len(own) == 1 or all(front.get(key) == job_id for key in own)}


def _open(state: str) -> bool:
    return bool(state) and state not in TERMINAL


def _ghost(store: Store, key: str, job_id: str) -> Finding:
    message = f"job {job_id} in front of it has ended or has no record: nothing behind it starts"
    fix = f"{store.redis_cli} ZREM {quote(store.key('line', key))} {quote(job_id)}"
    again = " && ".join(command(act, {"key": key}) for act in ("pause", "resume"))
    return Finding("error", "line.ghost", f"lane {shown_lane(key)}", message, f"{fix} && {again}")


def _of_leases(store: Store, ids: Sequence[str], living: set[str]) -> Iterator[Finding]:
    jobs = zip(ids, record.fields_of_many(store, ids, "state", "node"), strict=True)
    for job_id, (state, node) in jobs:
        if state == "running" and node not in living:
            message = f"it runs on node {node}, which is not alive: another node takes the job once its lease has ended"
            yield Finding("warning", "job.dead-node", f"job {job_id}", message, f"coordinator why -- {quote(job_id)}")


def _of_slots(store: Store, work: Mapping[str, Mapping[bytes, bytes]]) -> Iterator[Finding]:
    """Find slots that count as taken, though their jobs have ended or run elsewhere. `work`: node -> its claims."""
    taken = [
        (node, *text_in(entry).split(" ", 2)) for node, entries in work.items()
        for entry in entries.values() if entry.count(b" ") == 2
    ]  # fmt: skip
    jobs = record.fields_of_many(store, [job_id for *_, job_id in taken], "state", "token")
    for (node, token, _, job_id), (state, current) in zip(taken, jobs, strict=True):
        if state != "running" or token != current:
            message = f"a slot is taken for job {job_id} with the token {token}, which does not run there"
            fix = f"{command('drain', {'name': node})}  # then start its worker again"
            yield Finding("warning", "slot.no-job", f"node {node}", message, fix)


def _of_indexes(store: Store, entries: Sequence[tuple[str, str, str, bytes]]) -> Iterator[Finding]:
    """Find members of an index of a state whose jobs have ended.

    `entries`: state, Redis command that removes a member, key of the index, and member.
    """
    states = record.fields_of_many(store, [id_in(member) for *_, member in entries], "state")
    for (state, remove, name, member), (now,) in zip(entries, states, strict=True):
        if not _open(now):
            message = f"it is counted as {state}, but has ended or has no record"
            fix = f"{store.redis_cli} {remove} {quote(name)} {quote(member.decode())}"
            yield Finding("warning", "index.ghost", f"job {id_in(member)}", message, fix)


def _rest(thing: str, count: int) -> Iterator[Finding]:
    if count > MOST:
        yield Finding("info", "doctor.part", thing, f"only the first {MOST} of {count} were examined", "")
