"""The replica set of a document: the processes that keep copies of it, and those that should.

A member is "<name>#<identity>": the name is for people, the identity is that of its folder. So two machines of one name
are two members. Each member hears a channel of its own, by which Redis and people see that it lives.
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

from coordinator.store.client import Store


class Keeper(NamedTuple):
    """A process that keeps copies, or should. `inside`: it is in the replica set; `why` it is not, where that is known.

    `living`: it hears its channel.
    """

    name: str
    member: str
    inside: bool
    living: bool
    why: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A member's disk: the version that it knows as committed, the checksum noted then, and the file's checksum now."""

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
        """The names of those that are in it."""
        return sorted(names_of(self._inside()).values())

    def keepers(self) -> list[Keeper]:
        """All living processes that keep the document, or should, and the members that do not live, by name."""
        prefix = self.store.key("member", self.document) + ":"
        inside = self._inside()
        pattern = re.sub(r"([][?*\\])", r"\\\1", prefix) + "*"
        living = {one.decode().removeprefix(prefix) for one in self.store.read("PUBSUB CHANNELS", pattern)}
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
        look_id, answers, found = uuid.uuid4().hex, dict[str, OnDisk](), dict[str, OnDisk]()
        self.store.read("PUBLISH", self.store.key("replica", self.document), f"look {look_id}")
        deadline = time.monotonic() + seconds
        while not expected <= found.keys() and (left := deadline - time.monotonic()) > 0:
            if told := listen(self.store, look_id, left):
                member, version, noted, sha = loads(told)
                answers[member] = OnDisk(version, noted, sha)
                found = {name: answers[one] for one, name in names_of(answers).items()}
        return found

    def _inside(self) -> set[str]:
        found = self.store.read("HKEYS", self.store.key("replicas", self.document))
        return {member.decode() for member in found}


def listen(store: Store, what: str, seconds: float) -> bytes | None:
    """The next answer to an update or a look, or None: a call waits for a second at most."""
    found = store.read("BLPOP", store.key("told", what), max(0.01, min(seconds, 1.0, store.settings.timeout / 2)))
    return found[1] if found else None


def label_of(document: str) -> str:
    """The label of the nodes in the replica set."""
    return f"document:{document}"


def name_of(member: str) -> str:
    """A member's name, without the identity of its copies."""
    return member.rpartition("#")[0] or member


def names_of(members: Iterable[str]) -> dict[str, str]:
    """By member, its name; of two with one name, the name and the identity."""
    known = sorted(members)
    count = Counter(name_of(member) for member in known)
    return {member: member if count[name_of(member)] > 1 else name_of(member) for member in known}
