"""A document: a versioned set of entries on the disks of all nodes and beats, or of none.

    ask      an update waits in Redis; all that wait become the next version, whose number is a fence
    prepare  every member of the replica set writes that version to its disk, and reports its checksum
    commit   the report of the last member moves the pointer; from then on every read gives that version
    follow   Redis lists the entries that the permanent store lacks, until the store has them

Redis is authoritative: the pointer names the committed version. There is no leader: the next report of any member
finishes an update, also where its author, a node or a beat died meanwhile.

Each entry has the fence of its last change. Redis refuses an update with a smaller fence (`StaleFence`), or whose
author read an older state of the entry (`Changed`). Authors without a lane, such as operators, rely on the latter.

A read asks Redis for the pointer, one GET, and takes the version that it names from this machine's disk. A read never
goes back, and never shows a version that is not committed. While Redis is away, or while this machine is out of the
replica set, a read gives the copy on the disk, marked `stale`. A machine without a copy (a plain client, a node that
just starts) reads Redis itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kombu.utils.json import loads

from coordinator import StoreUnavailable
from coordinator.extending import Json, Store, instant
from tasks.documents.copy import NONE, Copy, text_of
from tasks.documents.errors import Changed, NotInReplicaSet, StaleFence, UpdatePending
from tasks.documents.library import with_documents
from tasks.documents.on_disk import Copies
from tasks.documents.replica_set import ReplicaSet, listen


@dataclass(frozen=True, slots=True)
class Commit:
    """An update in a document's history."""

    version: int
    at: datetime
    fence: int
    who: str
    why: str
    entries: tuple[str, ...]


class Document:
    """A document as this process sees it. `copies`: its machine's copies, None where it keeps none."""

    def __init__(self, store: Store, name: str, copies: Copies | None = None) -> None:
        self.store = with_documents(store)
        self.name = name
        self.copies = copies
        self.replica_set = ReplicaSet(store, name)
        self._copy = NONE
        self._seen = 0  # the highest version that a read gave as the newest

    def read(self) -> Copy:
        """The newest version, or this machine's copy, marked stale.

        Raises StoreUnavailable where Redis is away and this machine has no copy.
        """
        if self.copies is None:
            return self._known(*self.pointer()) or self._newest(self.fetch())
        for _ in range(3):  # the keeper may just have replaced the version on the disk
            before = max(self._seen, self.copies.committed().version)
            try:
                version, sha = self.pointer()
            except StoreUnavailable:
                if copy := self._stale(self.copies):
                    return copy
                raise
            if version < before:
                break  # Redis lost its end; members will put it forward again
            if copy := self._known(version, sha) or self.copies.read(version, sha):
                return self._newest(copy)
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
            known = copies.committed()
            if known.version and (copy := self._known(known.version, known.sha) or copies.read(known.version)):
                return replace(copy, stale=True)
        return None

    def pointer(self) -> tuple[int, str]:
        """The committed version and its checksum; (0, "-") before there is one."""
        return _pointer(self.store.read("GET", self._key("pointer")))

    def fetch(self) -> Copy:
        """The committed version from Redis itself, for processes that keep copies or have none."""
        both = [("GET", self._key("pointer")), ("HGETALL", self._key("document"))]
        pointer, state = self.store.read_many(both, atomic=True)
        return Copy(*_pointer(pointer), {entry.decode(): raw.decode() for entry, raw in state.items()})

    def current(self, *entries: str) -> Copy:
        """Some entries as they are committed, from Redis itself, without version and checksum."""
        values = self.store.read("HMGET", self._key("document"), *entries)
        return Copy(0, "-", {entry: raw.decode() for entry, raw in zip(entries, values, strict=True) if raw})

    def fence(self) -> int:
        """A new fence, for an author that has no lane and must supersede earlier ones."""
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
        act: str = "",
    ) -> int:
        """Change entries (None removes one). Returns the version that has the update, once all members have it.

        `fence`: that of the author's lane; StaleFence where Redis saw a greater one. None: each entry keeps its own.
        `expect`: the copy that the author read; Changed where an entry differs from it by now.
        `follow` False: the permanent store has the changes already. `update_id`: unique in the installation.
        `act`: an operator's (`author.act_of`), which the commit writes into the audit trail.
        UpdatePending(update_id), after `timeout` seconds, and StoreUnavailable leave the outcome unknown: call again
        with that id. Raises ValueError or TypeError where a value is not JSON.
        """
        if not changes:
            return self.pointer()[0]
        update_id = update_id or uuid.uuid4().hex
        rows: Json = [
            [entry, text_of(value), "" if expect is None else expect.digest(entry)] for entry, value in changes.items()
        ]
        about = {"id": update_id, "fence": str(fence or ""), "changes": rows, "follow": follow, "who": who, "why": why}
        update = text_of(about | ({"act": act} if act else {})).encode()
        deadline = time.monotonic() + timeout
        while True:
            outcome = self.store.step("document_ask", self.name, update).decode()
            if outcome != "asked":
                return self._version_of(outcome)
            if (left := deadline - time.monotonic()) <= 0:
                raise UpdatePending(self.name, update_id)
            answer = listen(self.store, update_id, left)
            if answer is not None and answer != b"asked":  # "asked": Redis wants the update again
                return self._version_of(answer.decode())

    def _version_of(self, outcome: str) -> int:
        """The version that has the update. Raises StaleFence or Changed."""
        verdict, _, rest = outcome.partition(" ")
        number, _, entry = rest.partition(" ")
        if verdict == "stale":
            raise StaleFence(self.name, entry, int(number))
        if verdict == "changed":
            raise Changed(f"document {self.name}: somebody changed {entry} meanwhile")
        return int(number)

    def behind(self, *entries: str) -> dict[str, int]:
        """The entries that the permanent store lacks, with the version of their change; only `entries` if named."""
        if entries:
            versions = self.store.read("HMGET", self._key("behind"), *entries)
            return {entry: int(version) for entry, version in zip(entries, versions, strict=True) if version}
        behind = self.store.read("HGETALL", self._key("behind"))
        return {entry.decode(): int(version) for entry, version in behind.items()}

    def followed(self, entry: str, version: int) -> bool:
        """Note that the permanent store has this version of the entry. False: the entry was changed since."""
        return bool(self.store.step("document_followed", self.name, entry, version))

    def run(self) -> str:
        """The id of this start of Redis. A Redis that started anew may have lost its last writes."""
        return str(self.store.read("INFO", "server")["run_id"])

    def stored(self, *names: str) -> dict[str, str]:
        """The notes about the permanent store, by name, each as `text_of` writes it; only of `names` if given."""
        if names:
            notes = self.store.read("HMGET", self._key("stored"), *names)
            return {name: note.decode() for name, note in zip(names, notes, strict=True) if note}
        notes = self.store.read("HGETALL", self._key("stored"))
        return {name.decode(): note.decode() for name, note in notes.items()}

    def stored_of(self, name: str) -> Any:
        """The note of this name, or None."""
        note = self.store.read("HGET", self._key("stored"), name)
        return loads(note) if note else None

    def note(self, name: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> bool:
        """Replace a note about the permanent store (None: no note). False: it is not `before`, and it stays."""
        texts = ["" if note is None else text_of(note) for note in (before, after)]
        return bool(self.store.step("document_note", self.name, name, *texts))

    def unseen(self) -> list[tuple[str, ...]]:
        """The commands after which the permanent store counts as one that nobody has seen, and that lacks all."""
        copy = self.fetch()
        lacking = [part for entry in copy.entries() for part in (entry, str(copy.version))]
        return [("DEL", self._key("stored")), *([("HSET", self._key("behind"), *lacking)] if lacking else [])]

    def history(self) -> list[Commit]:
        """The last 100 updates, the newest first."""
        commits = [loads(text) for text in self.store.read("LRANGE", self._key("history"), 0, 99)]
        return [
            Commit(
                int(item["version"]),
                instant(item["at"]),
                int(item["fence"]),
                item["who"],
                item["why"],
                tuple(item["entries"]),
            )
            for item in commits
        ]

    def check(self) -> None:
        """Raise NotInReplicaSet where this node is out of the replica set: its copy may be old. A client passes."""
        if self.copies is None:
            return
        if not self.store.read("SISMEMBER", self._key("replicas"), self.copies.member):
            raise NotInReplicaSet(self.name, self.copies.keeper)

    def members(self) -> list[str]:
        """The names of the replica set's members."""
        return self.replica_set.members()

    def _key(self, kind: str) -> str:
        return self.store.key(kind, self.name)


def _pointer(text: bytes | None) -> tuple[int, str]:
    version, _, sha = (text or b"0 -").decode().partition(" ")
    return int(version), sha
