"""Compares all copies of the nodelist: the disk of each node and beat, Redis, and the permanent store.

Each process of the replica set reads its own disk anew and answers. A difference counts if two looks both find it. One
that a change on its way makes is looked at until it is gone, or the patience is over: a disk that is about to have the
committed version, a version that is about to be written to the store, and the first version of all. A damaged copy
counts at once, since its process mends it right away.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple

from pydantic import JsonValue

from tasks.documents.copy import ANY, Copy, sum_of
from tasks.documents.replica_set import Keeper, OnDisk
from tasks.nodelist.entries import MEMBER, listed_in
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.store_notes import Note, Pending, json_of, lacking, lacks, parsed
from tasks.nodelist.stores import Listed, NodelistStoreAway

PAUSE = 0.5
FIRST = "nothing is committed yet: the first node that starts will read the permanent store"


class Verdict(NamedTuple):
    """`copies`: the version on each disk, by node or beat. `differences`: a sentence each.

    `keepers`: each living node and beat, and what it has: `same`, `behind`, `differs`, `damaged`, `out: <why>` or
    `unknown`.
    """

    version: int
    store: str
    copies: dict[str, int]
    keepers: dict[str, str]
    differences: list[str]


class _Comparison(NamedTuple):
    """`damaged`: a sentence for each damaged copy. `moving`: the differences that a change on its way makes."""

    verdict: Verdict
    damaged: list[str]
    moving: list[str]


def verify_all(
    nodelist: ReplicatedNodelist,
    nodes: Set[str],
    patience: float,
    waiting: Callable[[list[str]], object],
) -> Verdict:
    """`nodes`: the names of the live nodes, which ought to keep the list. Raises StoreUnavailable.

    `patience`: seconds to wait for changes on their way; `waiting` is called with what it waits for, once.
    """
    deadline, announced = time.monotonic() + patience, False
    before = _look(nodelist, nodes)
    damaged = before.damaged
    if not (before.verdict.differences or damaged):
        return before.verdict
    while True:
        time.sleep(PAUSE)
        now = _look(nodelist, nodes)
        damaged = [*dict.fromkeys([*damaged, *now.damaged])]
        lasting = [sentence for sentence in now.verdict.differences if sentence in before.verdict.differences]
        moving = [sentence for sentence in lasting if sentence in now.moving]
        if not moving or time.monotonic() > deadline:
            return now.verdict._replace(differences=[*damaged, *lasting])
        if not announced:
            waiting(moving)
        before, announced = now, True


def _look(nodelist: ReplicatedNodelist, nodes: Set[str]) -> _Comparison:
    document, name = nodelist.document, nodelist.store.name
    copy, known = document.fetch(), {keeper.name: keeper for keeper in document.replica_set.keepers()}
    if copy.version == 0:
        return _Comparison(Verdict(0, name, {}, {}, [FIRST]), [], [FIRST] if nodes else [])
    disks = document.replica_set.look({*nodes, *known})
    keepers = {who: _of_keeper(copy, known.get(who), disks.get(who)) for who in {*nodes, *known, *disks}}
    copies = {keeper: disks[keeper].version for keeper in sorted(disks)}
    states = {keeper: keepers[keeper][0] for keeper in sorted(keepers)}
    damaged = [f"{keeper} {keepers[keeper][1]}" for keeper in states if states[keeper] == "damaged"]
    differences = [
        f"{keeper} {keepers[keeper][1]}" for keeper, state in states.items() if state not in ("same", "damaged")
    ]
    moving = [f"{keeper} {keepers[keeper][1]}" for keeper, state in states.items() if state == "behind"]
    if not keepers:
        differences.append("no node or beat keeps the list: only Redis and the permanent store have it")
    if copy.sha in (*ANY, sum_of(copy.state)):
        pending = lacking(document)
        moving += lacks({member_id: lack for member_id, lack in pending.items() if nodes and not lack.why}, name)
        differences += _of_store(nodelist, copy, pending)
    else:  # without a good copy there is nothing to compare the store with
        differences.insert(0, f"Redis: its version {copy.version} is not the one that was committed")
    return _Comparison(Verdict(copy.version, name, copies, states, differences), damaged, moving)


def _of_keeper(copy: Copy, keeper: Keeper | None, disk: OnDisk | None) -> tuple[str, str]:
    """The state of a node or beat, and the rest of a sentence about it."""
    if keeper is not None and keeper.living and not keeper.inside:
        why = keeper.why or ("its list is stale" if disk else "it hangs, or it cannot write its disk")
        return f"out: {why}", f"is out of the replica set: {why}"
    if disk is None and keeper is not None:
        return "unknown", "does not answer: it is dead, or it hangs"
    if disk is None:
        return "unknown", "is not heard: it hangs, or it cannot reach Redis"
    if disk.damaged:
        return "damaged", f"has a damaged copy of version {disk.version}"
    if disk.version != copy.version:
        return "behind", f"has version {disk.version}, and {copy.version} is committed"
    if copy.sha not in (*ANY, disk.sha):
        return "differs", f"has a version {disk.version} that differs from the committed one"
    return "same", ""


def _of_store(nodelist: ReplicatedNodelist, copy: Copy, pending: Mapping[str, Pending]) -> Iterator[str]:
    name = nodelist.store.name
    yield from lacks(pending, name)
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
        note = parsed(notes.get(member_id))
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
        return  # the store cannot express our value better than that
    for field in expected:
        if expected[field] != has[field]:
            yield f"{member_id}: {field}: {name} has {has[field]}, and {expected[field]} is committed"


def _flat(listed: Listed) -> dict[str, JsonValue]:
    return {"approved": listed.approved} | listed.member.model_dump(mode="json")
