"""The replica set of a document: the processes that keep copies of it, and those that should.

A member is "<name>#<identity>": the name is for people, the identity is that of its folder. So two machines of one name
are two members. Each member subscribes to its own channel: Redis and commands see by that whether it lives.
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


class Keeper(NamedTuple):
    """A process that keeps copies, or should. `inside`: it is in the replica set; `why` it is not, where that is known.

    `living`: it is subscribed to its channel.
    """

    name: str
    member: str
    inside: bool
    living: bool
    why: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A member's disk: the version that it knows as committed, the checksum noted then, and the one that it has now."""

    version: int
    noted: str
    sha: str

    @property
    def damaged(self) -> bool:
        return self.noted != self.sha


class ReplicaSet:
    def __init__(self, store: Store, document: str) -> None:
        self.store = store
        self.document = document

    def members(self) -> list[str]:
        """The names of the members."""
        return sorted(names_of(self._inside()).values())

    def keepers(self) -> list[Keeper]:
        """All living processes that keep the document, or should, and the members that do not live, by name."""
        prefix = self.store.key("member", self.document) + ":"
        inside = self._inside()
        pattern = re.sub(r"([][?*\\])", r"\\\1", prefix) + "*"
        living = {channel.decode().removeprefix(prefix) for channel in self.store.read("PUBSUB CHANNELS", pattern)}
        names = names_of({*inside, *living})
        keys = [self.store.key("out", self.document) + ":" + member for member in names]
        whys = self.store.read("MGET", *keys) if keys else []
        return sorted(
            Keeper(name, member, member in inside, member in living, (why or b"").decode())
            for (member, name), why in zip(names.items(), whys, strict=True)
        )

    def look(self, expected: Set[str], seconds: float = 2.0) -> dict[str, OnDisk]:
        """Have each living process read its disk now. Returns the answers by name; a silent one is missing.

        Waits for the answers of all `expected` names, for at most so many seconds. A process whose copy is damaged
        fetches another.
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
        members = self.store.read("SMEMBERS", self.store.key("replicas", self.document))
        return {member.decode() for member in members}


def listen(store: Store, request_id: str, seconds: float) -> bytes | None:
    """Wait for the next answer to an update or a look, for a second at most; None where there was none."""
    popped = store.read(
        "BLPOP", store.key("answer", request_id), max(0.01, min(seconds, 1.0, store.settings.timeout / 2))
    )
    return popped[1] if popped else None


def outside(store: Store, document: str) -> list[str]:
    """A sentence for each living node or beat that is out of the replica set."""
    return [
        f"{keeper.name} is out of the replica set of {document}: {keeper.why or 'it does not report'}"
        for keeper in ReplicaSet(store, document).keepers()
        if keeper.living and not keeper.inside
    ]


def label_of(document: str) -> str:
    """The label of the nodes in the replica set."""
    return f"document:{document}"


def name_of(member: str) -> str:
    """A member's name, without the identity of its copies."""
    return member.rpartition("#")[0] or member


def names_of(members: Iterable[str]) -> dict[str, str]:
    """The name of each member; members that share a name keep their identity."""
    known = sorted(members)
    count = Counter(name_of(member) for member in known)
    return {member: member if count[name_of(member)] > 1 else name_of(member) for member in known}
