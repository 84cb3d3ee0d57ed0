"""Compares all copies of the nodelist: those on the disks of nodes and beats, in Redis, and in the permanent store.

For each comparison every node and beat reads the copy on its disk again. A difference counts if two comparisons in a
row find it. A change in progress makes differences, too: a disk that is about to have the committed version, a version
that is about to be written to the store, and the very first version. These are compared again until they are gone, or
until the time limit is over. A damaged copy counts at once, since its node or beat replaces it right away.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple

from pydantic import JsonValue

from tasks.documents.copy import ANY, Copy, sum_of
from tasks.documents.replica_set import OnDisk, ReplicaStatus
from tasks.nodelist.entries import MEMBER, listed_in
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.store_notes import Note, Pending, json_of, parse_note, pending_lines, pending_members
from tasks.nodelist.stores import Listed, NodelistStoreAway

PAUSE = 0.5
FIRST = "nothing is committed yet: the first node that starts will read the permanent store"


class Verdict(NamedTuple):
    """The result of a comparison of all copies. `version`: the committed one. `store`: the permanent store's name.

    `copies`: the version on each disk, by node or beat. `replicas`: the state of each copy, by node or beat: `same`,
    `behind`, `differs`, `damaged`, `out: <why>` or `unknown`. `differences`: a sentence each.
    """

    version: int
    store: str
    copies: dict[str, int]
    replicas: dict[str, str]
    differences: list[str]


class _Comparison(NamedTuple):
    """One comparison of all copies. `damaged`: a sentence about each damaged copy. `in_progress`: the differences in
    `verdict` that a change in progress makes.
    """

    verdict: Verdict
    damaged: list[str]
    in_progress: list[str]


def verify_all(
    nodelist: ReplicatedNodelist,
    nodes: Set[str],
    patience: float,
    waiting: Callable[[list[str]], object],
) -> Verdict:
    """Compare all copies of the nodelist until the result is certain. `nodes`: live nodes, which should have a copy.

    `patience`: seconds to wait for changes in progress. `waiting`: called once, before the wait, with the differences
    that these changes make. Raises StoreUnavailable while Redis is away.
    """
    deadline, announced = time.monotonic() + patience, False
    before = _compare(nodelist, nodes)
    damaged = before.damaged
    if not (before.verdict.differences or damaged):
        return before.verdict
    while True:
        time.sleep(PAUSE)
        now = _compare(nodelist, nodes)
        damaged = [*dict.fromkeys([*damaged, *now.damaged])]
        lasting = [sentence for sentence in now.verdict.differences if sentence in before.verdict.differences]
        in_progress = [sentence for sentence in lasting if sentence in now.in_progress]
        if not in_progress or time.monotonic() > deadline:
            return now.verdict._replace(differences=[*damaged, *lasting])
        if not announced:
            waiting(in_progress)
        before, announced = now, True


def _compare(nodelist: ReplicatedNodelist, nodes: Set[str]) -> _Comparison:
    document, name = nodelist.document, nodelist.store.name
    copy, known = document.fetch(), {replica.name: replica for replica in document.replica_set.replicas()}
    if copy.version == 0:
        return _Comparison(Verdict(0, name, {}, {}, [FIRST]), [], [FIRST] if nodes else [])
    disks = document.replica_set.check_disks({*nodes, *known})
    replicas = {who: _of_replica(copy, known.get(who), disks.get(who)) for who in {*nodes, *known, *disks}}
    copies = {replica: disks[replica].version for replica in sorted(disks)}
    states = {replica: replicas[replica][0] for replica in sorted(replicas)}
    damaged = [f"{replica} {replicas[replica][1]}" for replica in states if states[replica] == "damaged"]
    differences = [
        f"{replica} {replicas[replica][1]}" for replica, state in states.items() if state not in ("same", "damaged")
    ]
    in_progress = [f"{replica} {replicas[replica][1]}" for replica, state in states.items() if state == "behind"]
    if not replicas:
        differences.append("no node or beat has a copy of the list: only Redis and the permanent store have it")
    if copy.sha in (*ANY, sum_of(copy.state)):
        pending = pending_members(document)
        in_progress += pending_lines(
            {member_id: item for member_id, item in pending.items() if nodes and not item.why}, name
        )
        differences += _of_store(nodelist, copy, pending)
    else:  # the copy in Redis is not valid, so the permanent store cannot be compared with it
        differences.insert(0, f"Redis: its version {copy.version} is not the one that was committed")
    return _Comparison(Verdict(copy.version, name, copies, states, differences), damaged, in_progress)


def _of_replica(copy: Copy, replica: ReplicaStatus | None, disk: OnDisk | None) -> tuple[str, str]:
    """The state of a node's or beat's copy, as in Verdict, and a sentence about it without the name at the start.

    `copy`: the committed version. `replica`: the node or beat, as Redis knows it. `disk`: its answer; None: no answer.
    """
    if replica is not None and replica.living and not replica.inside:
        why = replica.why or ("its list is stale" if disk else "it hangs, or it cannot write its disk")
        return f"out: {why}", f"is out of the replica set: {why}"
    if disk is None and replica is not None:
        return "unknown", "does not answer: it is dead, or it hangs"
    if disk is None:
        return "unknown", "does not subscribe: it hangs, or it cannot reach Redis"
    if disk.damaged:
        return "damaged", f"has a damaged copy of version {disk.version}"
    if disk.version != copy.version:
        return "behind", f"has version {disk.version}, and {copy.version} is committed"
    if copy.sha not in (*ANY, disk.sha):
        return "differs", f"has a version {disk.version} that differs from the committed one"
    return "same", ""


def _of_store(nodelist: ReplicatedNodelist, copy: Copy, pending: Mapping[str, Pending]) -> Iterator[str]:
    name = nodelist.store.name
    yield from pending_lines(pending, name)
    notes = nodelist.document.stored()
    try:
        stored = nodelist.store.read()
    except NodelistStoreAway as away:
        yield f"the permanent store cannot be compared: {away}"
        return
    for member_id in sorted(stored.bad):
        yield not_understood(member_id, name)
    names = [entry.removeprefix(MEMBER) for entry in copy.entries(MEMBER)]
    ours = {member_id: listed_in(copy, member_id) for member_id in names}
    for member_id in sorted({*stored.states, *ours} - pending.keys() - stored.bad):
        state = stored.states.get(member_id)
        note = parse_note(notes.get(member_id))
        yield from _of_member(name, member_id, ours.get(member_id), state and state.listed, note)


def not_understood(member_id: str, store: str) -> str:
    return f"{member_id}: its entry in {store} cannot be understood"


def _of_member(
    name: str, member_id: str, ours: Listed | None, theirs: Listed | None, note: Note | None
) -> Iterator[str]:
    if ours is None or theirs is None:
        yield f"{member_id} is only in {name}" if theirs else f"{member_id} is not in {name}"
        return
    expected, has = _flat(ours), _flat(theirs)
    if note and (note["wrote"], note["listed"]) == (json_of(ours), json_of(theirs)):
        return  # the store has our value, in the nearest form that it can express
    for field in expected:
        if expected[field] != has[field]:
            yield f"{member_id}: {field}: {name} has {has[field]}, and {expected[field]} is committed"


def _flat(listed: Listed) -> dict[str, JsonValue]:
    return {"approved": listed.approved} | listed.member.model_dump(mode="json")
