"""A document: a versioned set of entries on the disks of all nodes and beats, or of none.

    ask      an update waits in Redis; all that wait become the next version, whose number is a fence
    prepare  every member of the replica set writes that version to its disk, and reports its checksum
    commit   the report of the last member moves the pointer; from then on every read gives that version
    follow   Redis lists the entries that the permanent store lacks, until the store has them

Redis is authoritative: the pointer names the committed version. Nobody leads. The next report of any member finishes
an update, so the death of its author, of a node or of a beat changes nothing.

Each entry has the fence of its last change. Redis refuses an update with a smaller fence (`StaleFence`), and one whose
author read another state than it meets (`Changed`). By the latter, authors without a lane, such as operators, do
without a fence.

A read asks Redis for the pointer, one GET, and takes the version that it names from this machine's disk. A read never
goes back, and never ahead of the other nodes. While Redis is away, or while this machine is out of the replica set,
a read gives the copy on the disk, marked `stale`. A machine without a copy (a plain client, a node that just starts)
reads Redis itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kombu.utils.json import loads

from coordinator.documents.copies import Copies
from coordinator.documents.copy import ANY, Copy, text_of
from coordinator.documents.replica_set import ReplicaSet, listen
from coordinator.errors import Changed, NotInReplicaSet, StaleFence, StoreUnavailable, UpdatePending
from coordinator.store.client import Store
from coordinator.store.values import Json


@dataclass(frozen=True, slots=True)
class Commit:
    """One update in a document's history. `at`: seconds since the epoch."""

    version: int
    at: float
    fence: int
    who: str
    why: str
    entries: tuple[str, ...]


class Document:
    """A document as this process sees it. `copies`: its machine's copies, None where it keeps none."""

    def __init__(self, store: Store, name: str, copies: Copies | None = None) -> None:
        self.store = store
        self.name = name
        self.copies = copies
        self.replica_set = ReplicaSet(store, name)
        self._copy = Copy(0, "-", {})
        self._seen = 0  # the highest version that a read gave as the newest

    def read(self) -> Copy:
        """The newest version, or this machine's copy, marked stale.

        Raises StoreUnavailable where Redis is away and this machine has no copy.
        """
        if self.copies is None:
            return self._known(*self.pointer()) or self._newest(self.fetch())
        for _ in range(3):  # the disk may just have dropped a version that was superseded
            before = max(self._seen, self.copies.committed()[0])
            try:
                version, sha = self.pointer()
            except StoreUnavailable:
                if found := self._stale(self.copies):
                    return found
                raise
            if version < before:
                break  # Redis lost its end; members will put it forward again
            if found := self._known(version, sha) or self.copies.read(version, sha):
                return self._newest(found)
        return self._stale(self.copies) or self._newest(self.fetch())

    def _known(self, version: int, sha: str) -> Copy | None:
        copy = self._copy
        return copy if (copy.version, copy.sha) == (version, sha) else None

    def _newest(self, copy: Copy) -> Copy:
        if copy.version < self._seen:
            return replace(copy, stale=True)
        self._copy, self._seen = copy, copy.version
        return copy

    def _stale(self, copies: Copies) -> Copy | None:
        """The last version that this machine knows as committed; None where it cannot read any."""
        for _ in range(3):
            version, sha = copies.committed()
            if version and (found := self._known(version, sha) or copies.read(version, sha)):
                return replace(found, stale=True)
        return None

    def pointer(self) -> tuple[int, str]:
        """The committed version and its checksum; (0, "-") before there is one."""
        return _pointer(*self.store.read("MGET", self._key("pointer"), self._key("sum")))

    def fetch(self) -> Copy:
        """The committed version from Redis itself, for processes that keep copies or have none."""

        both = self.store.client.pipeline(transaction=True)
        both.mget(self._key("pointer"), self._key("sum"))
        both.hgetall(self._key("document"))
        pointer, found = self.store.call(both.execute)
        return Copy(*_pointer(*pointer), {entry.decode(): raw.decode() for entry, raw in found.items()})

    def current(self, *entries: str) -> Copy:
        """Some entries as they are committed, from Redis itself, without version and checksum."""
        found = self.store.read("HMGET", self._key("document"), *entries)
        return Copy(0, "-", {entry: raw.decode() for entry, raw in zip(entries, found, strict=True) if raw})

    def fence(self) -> int:
        """A new fence, for an author without a lane that must be told from earlier ones."""
        return int(self.store.step("fence_next"))

    def update(
        self,
        changes: Mapping[str, object],
        *,
        fence: int | None = None,
        expect: Copy | None = None,
        follow: bool = True,
        who: str = "",
        why: str = "",
        timeout: float = 10.0,
        update_id: str = "",
    ) -> int:
        """Change entries (None removes one). Returns the version that has the update, once all members have it.

        `fence`: that of the author's lane; StaleFence where Redis saw a greater one. None: each entry keeps its own.
        `expect`: the copy that the author read; Changed where an entry differs from it by now.
        `follow` False: the permanent store has the changes already. `update_id`: unique in the installation.
        UpdatePending(update_id), after `timeout` seconds, and StoreUnavailable leave the outcome unknown: ask again
        with that id. Raises ValueError or TypeError where a value is not JSON.
        """
        if not changes:
            return self.pointer()[0]
        update_id = update_id or uuid.uuid4().hex
        given: Json = [
            [entry, text_of(value), "" if expect is None else expect.digest(entry)] for entry, value in changes.items()
        ]
        about = {"id": update_id, "fence": str(fence or ""), "changes": given, "follow": follow, "who": who, "why": why}
        asked = text_of(about).encode()
        deadline = time.monotonic() + timeout
        while True:
            outcome = self.store.step("document_ask", self.name, asked).decode()
            if outcome != "asked":
                return self._told(outcome)
            if (left := deadline - time.monotonic()) <= 0:
                raise UpdatePending(self.name, update_id)
            told = listen(self.store, update_id, left)
            if told is not None and told != b"asked":  # "asked": Redis wants the update again
                return self._told(told.decode())

    def _told(self, outcome: str) -> int:
        verdict, _, rest = outcome.partition(" ")
        number, _, entry = rest.partition(" ")
        if verdict == "stale":
            raise StaleFence(self.name, entry, int(number))
        if verdict == "changed":
            raise Changed(f"document {self.name}: somebody changed {entry} meanwhile")
        return int(number)

    def behind(self, *entries: str) -> dict[str, int]:
        """The entries that the permanent store lacks, each with the version since when; only `entries` if given."""
        if entries:
            some = self.store.read("HMGET", self._key("behind"), *entries)
            return {entry: int(version) for entry, version in zip(entries, some, strict=True) if version}
        found = self.store.read("HGETALL", self._key("behind"))
        return {entry.decode(): int(version) for entry, version in found.items()}

    def followed(self, entry: str, version: int) -> bool:
        """Note that the permanent store has the entry as of this version. False: the entry was changed since."""
        return bool(self.store.step("document_followed", self.name, entry, version))

    def run(self) -> str:
        """The id of this start of Redis. A Redis that started anew may have lost its last writes."""
        return str(self.store.read("INFO", "server")["run_id"])

    def stored(self) -> dict[str, str]:
        """The notes on the permanent store's state when it was last read: by name, each as `text_of` writes it."""
        found = self.store.read("HGETALL", self._key("stored"))
        return {name.decode(): note.decode() for name, note in found.items()}

    def stored_of(self, name: str) -> Any:
        """One of these notes, or None."""
        note = self.store.read("HGET", self._key("stored"), name)
        return loads(note) if note else None

    def note(self, name: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> bool:
        """Change a note on the permanent store (None: no note). False: it differs from `before`, nothing was done."""
        texts = ["" if note is None else text_of(note) for note in (before, after)]
        return bool(self.store.step("document_note", self.name, name, *texts))

    def history(self) -> list[Commit]:
        """The last 100 updates, the newest first."""
        found = [loads(text) for text in self.store.read("LRANGE", self._key("history"), 0, 99)]
        return [
            Commit(
                int(one["version"]), one["at"] / 1000, int(one["fence"]), one["who"], one["why"], tuple(one["entries"])
            )
            for one in found
        ]

    def check(self) -> None:
        """Raise NotInReplicaSet where this process's node may not read the newest version. A client always may."""
        if self.copies is None:
            return
        if not self.store.read("HEXISTS", self._key("replicas"), self.copies.member):
            raise NotInReplicaSet(self.name, self.copies.keeper)

    def members(self) -> list[str]:
        """The names of the replica set's members."""
        return self.replica_set.members()

    def _key(self, kind: str) -> str:
        return self.store.key(kind, self.name)


def _pointer(text: bytes | None, noted: bytes | None) -> tuple[int, str]:
    version, _, sha = (text or b"0 -").decode().partition(" ")
    of, _, total = (noted or b"").decode().partition(" ")
    return int(version), total if sha in ANY and of == version else sha
