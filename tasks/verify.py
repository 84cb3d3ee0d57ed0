"""Whether all that keep the nodelist have the same: the disk of each node and beat, Redis, and the permanent store.

Each member of the replica set reads its own disk anew and answers, wherever it is. All is looked at twice: a difference
that is there only once was a change on its way. What a damaged copy says counts at once, since its member mends it.
"""

import time
from collections.abc import Iterator, Set
from typing import Any, NamedTuple

from coordinator.copies import Copy, checksum
from coordinator.replicas import OnDisk
from tasks.notes import MEMBER, ours_of, parsed
from tasks.pending import lacking
from tasks.replicated import ReplicatedNodelist
from tasks.sources import Listed, SourceAway

PAUSE = 0.5


class Verdict(NamedTuple):
    """`copies`: the version that each member has; `differences`: a sentence each."""

    version: int
    store: str
    copies: dict[str, int]
    differences: list[str]


def verify(nodelist: ReplicatedNodelist, nodes: Set[str]) -> Verdict:
    """`nodes`: the names of those that are alive and ought to keep it. Raises StoreUnavailable."""
    first, damaged = _look(nodelist, nodes)
    if not (first.differences or damaged):
        return first
    time.sleep(PAUSE)
    second, again = _look(nodelist, nodes)
    lasting = [one for one in second.differences if one in first.differences]
    return second._replace(differences=[*dict.fromkeys([*damaged, *again]), *lasting])


def _look(nodelist: ReplicatedNodelist, nodes: Set[str]) -> tuple[Verdict, list[str]]:
    """And apart, who has a damaged copy."""
    document, name = nodelist.document, nodelist.source.name
    copy, kept_by = document.fetch(), set(document.members())
    if copy.version == 0:
        said = ["nothing is committed yet: the first node that starts reads the permanent store"]
        return Verdict(0, name, {}, said), []
    disks = document.look(kept_by | nodes)
    damaged = [f"{name}: its copy of version {one.version} is damaged" for name, one in disks.items() if one.damaged]
    said = [*_of_disks(copy, disks, kept_by, nodes)]
    if copy.sha in ("-", checksum(document.name, copy.version, copy.state)):
        said += _of_store(nodelist, copy)
    else:  # nothing can be said of the store: what it is to have is not known
        said.insert(0, f"Redis: what it has is not version {copy.version} as that was committed")
    return Verdict(copy.version, name, {member: disks[member].version for member in sorted(disks)}, said), damaged


def _of_disks(copy: Copy, disks: dict[str, OnDisk], kept_by: Set[str], nodes: Set[str]) -> Iterator[str]:
    if not disks and not kept_by | nodes:
        yield "no node or beat keeps it: it is in Redis and in the permanent store alone"
    for name in sorted(kept_by | nodes | disks.keys()):
        disk = disks.get(name)
        if disk is None and name in kept_by:
            yield f"{name} does not answer: it is dead, or hangs"
        elif disk is None:
            yield f"{name} is out of the replica set: it hangs, or cannot write its disk"
        elif disk.damaged:
            continue
        elif disk.version != copy.version:
            yield f"{name} has version {disk.version}, and {copy.version} is committed"
        elif copy.sha not in ("-", disk.sha):
            yield f"{name} has another version {disk.version} than was committed"
        elif name not in kept_by:
            yield f"{name} is out of the replica set: what it reads is stale"


def _of_store(nodelist: ReplicatedNodelist, copy: Copy) -> Iterator[str]:
    pending, name = lacking(nodelist.document), nodelist.source.name
    for node_id, one in pending.items():
        yield f"{node_id}: {name} lacks version {one.version}: {one.reason}"
    notes = nodelist.document.stored()
    try:
        found = nodelist.source.read()
    except SourceAway as away:
        yield f"the permanent store cannot be compared: {away}"
        return
    for node_id in sorted(found.bad):
        yield f"{node_id}: what {name} has of it cannot be understood"
    ours = {node_id: ours_of(copy, node_id) for node_id in (e.removeprefix(MEMBER) for e in copy.entries(MEMBER))}
    for node_id in sorted({*found.states, *ours} - pending.keys() - found.bad):
        state = found.states.get(node_id)
        yield from _of_member(name, node_id, ours.get(node_id), state and state.listed, parsed(notes.get(node_id)))


def _of_member(name: str, node_id: str, ours: Listed | None, theirs: Listed | None, note: Any) -> Iterator[str]:
    if ours is None or theirs is None:
        yield f"{node_id} is in {name} only" if theirs else f"{node_id} is not in {name}"
        return
    wanted, has = _flat(ours), _flat(theirs)
    if note and (note["wrote"], note["listed"]) == (ours.model_dump(mode="json"), theirs.model_dump(mode="json")):
        return  # it is what the store makes of ours
    for field in wanted:
        if wanted[field] != has[field]:
            yield f"{node_id}: {field}: {has[field]} in {name}, {wanted[field]} is committed"


def _flat(one: Listed) -> dict[str, Any]:
    return {"approved": one.approved} | one.member.model_dump(mode="json")
