"""Do all that keep the nodelist have the same? They are the disk of each node and beat, Redis, and the permanent store.

Each process of the replica set reads its own disk anew and answers. A difference counts if two looks both find it: a
change on its way shows in one look only. A damaged copy counts at once, since its process mends it right away.
"""

import time
from collections.abc import Iterator, Set
from typing import NamedTuple

from pydantic import JsonValue

from coordinator.documents.copies import Copy, checksum
from coordinator.documents.document import OnDisk
from tasks.nodelist.entries import MEMBER, listed_in
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.store_notes import Note, json_of, lacking, parsed
from tasks.nodelist.stores import Listed, NodelistStoreAway

PAUSE = 0.5


class Verdict(NamedTuple):
    """`copies`: the version on each disk, by node or beat. `differences`: a sentence each."""

    version: int
    store: str
    copies: dict[str, int]
    differences: list[str]


def verify_all(nodelist: ReplicatedNodelist, nodes: Set[str]) -> Verdict:
    """`nodes`: the names of the live nodes, which ought to keep the list. Raises StoreUnavailable."""
    first, damaged = _look(nodelist, nodes)
    if not (first.differences or damaged):
        return first
    time.sleep(PAUSE)
    second, again = _look(nodelist, nodes)
    lasting = [one for one in second.differences if one in first.differences]
    return second._replace(differences=[*dict.fromkeys([*damaged, *again]), *lasting])


def _look(nodelist: ReplicatedNodelist, nodes: Set[str]) -> tuple[Verdict, list[str]]:
    """The verdict of one look, and beside it a sentence for each damaged copy."""
    document, name = nodelist.document, nodelist.store.name
    copy, kept_by = document.fetch(), set(document.members())
    if copy.version == 0:
        said = ["nothing is committed yet: the first node that starts will read the permanent store"]
        return Verdict(0, name, {}, said), []
    disks = document.look(kept_by | nodes)
    damaged = [f"{name}: its copy of version {one.version} is damaged" for name, one in disks.items() if one.damaged]
    said = [*_of_disks(copy, disks, kept_by, nodes)]
    if copy.sha in ("-", checksum(document.name, copy.version, copy.state)):
        said += _of_store(nodelist, copy)
    else:  # without a good copy there is nothing to compare the store with
        said.insert(0, f"Redis: its version {copy.version} is not the one that was committed")
    return Verdict(copy.version, name, {keeper: disks[keeper].version for keeper in sorted(disks)}, said), damaged


def _of_disks(copy: Copy, disks: dict[str, OnDisk], kept_by: Set[str], nodes: Set[str]) -> Iterator[str]:
    if not disks and not kept_by | nodes:
        yield "no node or beat keeps the list: only Redis and the permanent store have it"
    for name in sorted(kept_by | nodes | disks.keys()):
        disk = disks.get(name)
        if disk is None and name in kept_by:
            yield f"{name} does not answer: it is dead, or it hangs"
        elif disk is None:
            yield f"{name} is out of the replica set: it hangs, or it cannot write its disk"
        elif disk.damaged:
            continue
        elif disk.version != copy.version:
            yield f"{name} has version {disk.version}, and {copy.version} is committed"
        elif copy.sha not in ("-", disk.sha):
            yield f"{name} has a version {disk.version} that differs from the committed one"
        elif name not in kept_by:
            yield f"{name} is out of the replica set: it reads a stale list"


def _of_store(nodelist: ReplicatedNodelist, copy: Copy) -> Iterator[str]:
    pending, name = lacking(nodelist.document), nodelist.store.name
    for member_id, one in pending.items():
        yield f"{member_id}: {name} lacks version {one.version}: {one.reason}"
    notes = nodelist.document.stored()
    try:
        found = nodelist.store.read()
    except NodelistStoreAway as away:
        yield f"the permanent store cannot be compared: {away}"
        return
    for member_id in sorted(found.bad):
        yield not_understood(member_id, name)
    names = [entry.removeprefix(MEMBER) for entry in copy.entries(MEMBER)]
    ours = {member_id: listed_in(copy, member_id) for member_id in names}
    for member_id in sorted({*found.states, *ours} - pending.keys() - found.bad):
        state = found.states.get(member_id)
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


def _flat(one: Listed) -> dict[str, JsonValue]:
    return {"approved": one.approved} | one.member.model_dump(mode="json")
