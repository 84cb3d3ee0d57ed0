"""Compares all copies of the nodelist: the disk of each node and beat, Redis, and the permanent store.

Each process of the replica set reads its own disk anew and answers. A difference counts if two looks both find it: a
change on its way shows in one look only. A damaged copy counts at once, since its process mends it right away.
"""

import time
from collections.abc import Iterator, Set
from typing import NamedTuple

from pydantic import JsonValue

from tasks.documents.copy import ANY, Copy, sum_of
from tasks.documents.replica_set import Keeper, OnDisk
from tasks.nodelist.entries import MEMBER, listed_in
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.store_notes import Note, json_of, lacking, parsed
from tasks.nodelist.stores import Listed, NodelistStoreAway

PAUSE = 0.5


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


def verify_all(nodelist: ReplicatedNodelist, nodes: Set[str]) -> Verdict:
    """`nodes`: the names of the live nodes, which ought to keep the list. Raises StoreUnavailable."""
    first, damaged = _look(nodelist, nodes)
    if not (first.differences or damaged):
        return first
    time.sleep(PAUSE)
    second, again = _look(nodelist, nodes)
    lasting = [sentence for sentence in second.differences if sentence in first.differences]
    return second._replace(differences=[*dict.fromkeys([*damaged, *again]), *lasting])


def _look(nodelist: ReplicatedNodelist, nodes: Set[str]) -> tuple[Verdict, list[str]]:
    """The verdict of one look, and beside it a sentence for each damaged copy."""
    document, name = nodelist.document, nodelist.store.name
    copy, known = document.fetch(), {keeper.name: keeper for keeper in document.replica_set.keepers()}
    if copy.version == 0:
        differences = ["nothing is committed yet: the first node that starts will read the permanent store"]
        return Verdict(0, name, {}, {}, differences), []
    disks = document.replica_set.look({*nodes, *known})
    keepers = {who: _of_keeper(copy, known.get(who), disks.get(who)) for who in {*nodes, *known, *disks}}
    copies = {keeper: disks[keeper].version for keeper in sorted(disks)}
    states = {keeper: keepers[keeper][0] for keeper in sorted(keepers)}
    damaged = [f"{keeper} {keepers[keeper][1]}" for keeper in states if states[keeper] == "damaged"]
    differences = [
        f"{keeper} {keepers[keeper][1]}" for keeper, state in states.items() if state not in ("same", "damaged")
    ]
    if not keepers:
        differences.append("no node or beat keeps the list: only Redis and the permanent store have it")
    if copy.sha in (*ANY, sum_of(copy.state)):
        differences += _of_store(nodelist, copy)
    else:  # without a good copy there is nothing to compare the store with
        differences.insert(0, f"Redis: its version {copy.version} is not the one that was committed")
    return Verdict(copy.version, name, copies, states, differences), damaged


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


def _of_store(nodelist: ReplicatedNodelist, copy: Copy) -> Iterator[str]:
    pending, name = lacking(nodelist.document), nodelist.store.name
    for member_id, lack in pending.items():
        yield f"{member_id}: {name} lacks version {lack.version}: {lack.reason}"
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
    wanted, has = _flat(ours), _flat(theirs)
    if note and (note["wrote"], note["listed"]) == (json_of(ours), json_of(theirs)):
        return  # the store cannot express our value better than that
    for field in wanted:
        if wanted[field] != has[field]:
            yield f"{member_id}: {field}: {name} has {has[field]}, and {wanted[field]} is committed"


def _flat(listed: Listed) -> dict[str, JsonValue]:
    return {"approved": listed.approved} | listed.member.model_dump(mode="json")
