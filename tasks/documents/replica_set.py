"""The replica set of a document: the processes, nodes and beats, that have acknowledged each version of the document.

A member is "<name>#<identity>": the name of the node or beat, and the identity of the folder with its copies. So two
machines of the same name are two members. Each member subscribes to a channel of its own, by which Redis and commands
see whether the process lives.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import NamedTuple

from kombu.utils.json import loads

from coordinator.extending import Store


class ReplicaStatus(NamedTuple):
    """A process that keeps copies of a document, or should. `inside`: it is in the replica set.

    `why`: the reason why it is not in the set; "" if unknown. `living`: it is subscribed to its own channel.
    """

    name: str
    member: str
    inside: bool
    living: bool
    why: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What one node of the replica set has on its disk of a document. `version`: the last one that it committed.

    `noted`: the checksum that the node stored at that commit. `sha`: the checksum of the files as they are now; "" if
    they are damaged.
    """

    version: int
    noted: str
    sha: str

    @property
    def damaged(self) -> bool:
        return self.noted != self.sha


class ReplicaSet:
    """Reads from Redis which nodes and beats keep copies of a document."""

    def __init__(self, store: Store, document: str) -> None:
        self.store = store
        self.document = document

    def members(self) -> list[str]:
        """Return the names of the nodes and beats in the replica set, sorted."""
        return sorted(names_of(self._inside()).values())

    def replicas(self) -> list[ReplicaStatus]:
        """Return all living processes that keep the document or should, and the dead members of the set, by name."""
        prefix = self.store.key("member", self.document) + ":"
        inside = self._inside()
        pattern = re.sub(r"([][?*\\])", r"\\\1", prefix) + "*"
        living = {channel.decode().removeprefix(prefix) for channel in self.store.read("PUBSUB CHANNELS", pattern)}
        names = names_of({*inside, *living})
        keys = [self.store.key("out", self.document) + ":" + member for member in names]
        whys = self.store.read("MGET", *keys) if keys else []
        return sorted(
            ReplicaStatus(name, member, member in inside, member in living, (why or b"").decode())
            for (member, name), why in zip(names.items(), whys, strict=True)
        )

    def check_disks(self, expected: Set[str], seconds: float = 2.0) -> dict[str, OnDisk]:
        """Have each living process read its disk now. Returns the answers by name of the node or beat.

        Waits up to `seconds` for the answers of all names in `expected`; a process that does not answer is left out. A
        process with a damaged copy fetches another from Redis.
        """
        look_id, answers, named = uuid.uuid4().hex, dict[str, OnDisk](), dict[str, OnDisk]()
        self.store.read("PUBLISH", self.store.key("replica", self.document), f"look {look_id}")
        deadline = time.monotonic() + seconds
        while not expected <= named.keys() and (left := deadline - time.monotonic()) > 0:
            if answer := listen(self.store, look_id, left):
                member, version, noted, sha = loads(answer)
                answers[member] = OnDisk(version, noted, sha)
                named = {name: answers[member] for member, name in names_of(answers).items()}
        return named

    def _inside(self) -> set[str]:
        """Read the members of the replica set, as "<name>#<identity>"."""
        members = self.store.read("SMEMBERS", self.store.key("replicas", self.document))
        return {member.decode() for member in members}


def listen(store: Store, request_id: str, seconds: float) -> bytes | None:
    """Wait for the next answer to an update or to a `look`; None: none came within `seconds`, or within a second.

    `request_id`: the id of the update or of the `look`.
    """
    # Wait less than the socket timeout, after which a BLPOP without an answer would be an error.
    popped = store.read(
        "BLPOP", store.key("answer", request_id), max(0.01, min(seconds, 1.0, store.settings.timeout / 2))
    )
    return popped[1] if popped else None


def outside(store: Store, document: str) -> list[str]:
    """Return a sentence for each living node or beat that is out of the document's replica set."""
    return [
        f"{replica.name} is out of the replica set of {document}: {replica.why or 'it does not report'}"
        for replica in ReplicaSet(store, document).replicas()
        if replica.living and not replica.inside
    ]


def label_of(document: str) -> str:
    """Return the label that a node has while it is in the document's replica set."""
    return f"document:{document}"


def name_of(member: str) -> str:
    """Return the name of the node or beat in "<name>#<identity>"."""
    return member.rpartition("#")[0] or member


def names_of(members: Iterable[str]) -> dict[str, str]:
    """Map each member, "<name>#<identity>", to its name; if two members share a name, to the whole text."""
    known = sorted(members)
    count = Counter(name_of(member) for member in known)
    return {member: member if count[name_of(member)] > 1 else name_of(member) for member in known}
