"""A document: a versioned set of entries on the disks of all nodes and beats, or of none.

    ask      an update waits in Redis; all waiting updates become the next version, whose number is a fence
    prepare  every member of the replica set writes that version to its disk, and reports its checksum to Redis
    commit   the report of the last member moves the pointer; from then on every read returns that version
    behind   Redis lists the entries that the permanent store lacks, until a process has written them to that store

Redis decides: the pointer in Redis names the committed version. There is no leader: the next report of any member
finishes an update, even if the process that requested the update, or a node or beat, died in between.

Each entry has the fence of its last change. Redis refuses an update with a smaller fence (`StaleFence`), and an update
of an entry that has changed since the author of the update read it (`Changed`). Authors without a lane, such as
operators, have no fence of their own and rely on the latter.

A read gets the pointer from Redis, and reads the version that the pointer names from this machine's disk. A read never
returns an older version than an earlier read of the same process, nor a version that is not committed. While Redis is
away, or while this machine is out of the replica set, a read returns the copy on the disk, marked `stale`. A machine
without a copy (a plain client, or a node that is starting) reads the whole version from Redis.
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
from coordinator.extending import Json, Store, fence_next, instant
from tasks.documents.copy import NONE, Copy, text_of
from tasks.documents.errors import Changed, NotInReplicaSet, StaleFence, UpdatePending
from tasks.documents.library import with_documents
from tasks.documents.on_disk import Copies
from tasks.documents.replica_set import ReplicaSet, listen
from tasks.documents.steps import document_ask, document_followed, document_note


@dataclass(frozen=True, slots=True)
class Commit:
    """An update in a document's history. `who`, `why`: the author and the reason.

    `entries`: the names of the changed entries. `fence`: the fence that the first of these entries got.
    """

    version: int
    at: datetime
    fence: int
    who: str
    why: str
    entries: tuple[str, ...]


class Document:
    """Reads and updates a document. `copies`: this machine's copies on disk; None: read from Redis only."""

    def __init__(self, store: Store, name: str, copies: Copies | None = None) -> None:
        self.store = with_documents(store)
        self.name = name
        self.copies = copies
        self.replica_set = ReplicaSet(store, name)
        self._copy = NONE
        self._seen = 0  # the greatest version that a read of this process returned as the newest

    def read(self) -> Copy:
        """Return the committed version; if that cannot be had, this machine's copy, marked stale.

        Raises StoreUnavailable if Redis is away and this machine has no copy.
        """
        if self.copies is None:
            return self._known(*self.pointer()) or self._newest(self.fetch())
        for _ in range(3):  # the process that owns the folder may replace the version between the two reads
            before = max(self._seen, self.copies.committed().version)
            try:
                version, sha = self.pointer()
            except StoreUnavailable:
                if copy := self._stale(self.copies):
                    return copy
                raise
            if version < before:
                break  # Redis has restarted without its last writes, which members of the replica set will restore
            if copy := self._known(version, sha) or self.copies.read(version, sha):
                return self._newest(copy)
        return self._stale(self.copies) or self._newest(self.fetch())

    def _known(self, version: int, sha: str) -> Copy | None:
        """Return the version that the last read kept in memory, if it is this one."""
        copy = self._copy
        return copy if (copy.version, copy.sha) == (version, sha) else None

    def _newest(self, copy: Copy) -> Copy:
        """Keep the copy in memory and return it. If an earlier read returned a newer version, mark the copy stale."""
        if copy.version < self._seen:
            return replace(copy, stale=True)
        self._copy, self._seen = copy, copy.version
        return copy

    def _stale(self, copies: Copies) -> Copy | None:
        """Return the last version committed on this machine's disk, marked stale; None if none can be read."""
        for _ in range(3):
            known = copies.committed()
            if known.version and (copy := self._known(known.version, known.sha) or copies.read(known.version)):
                return replace(copy, stale=True)
        return None

    def pointer(self) -> tuple[int, str]:
        """Read from Redis the number of the committed version and its checksum; (0, "-") before the first version."""
        return _pointer(self.store.read("GET", self._key("pointer")))

    def fetch(self) -> Copy:
        """Read the committed version, with all entries, from Redis."""
        both = [("GET", self._key("pointer")), ("HGETALL", self._key("document"))]
        pointer, state = self.store.read_many(both, atomic=True)
        return Copy(*_pointer(pointer), {entry.decode(): raw.decode() for entry, raw in state.items()})

    def current(self, *entries: str) -> Copy:
        """Read only these entries of the committed version from Redis, without the version's number and checksum."""
        values = self.store.read("HMGET", self._key("document"), *entries)
        return Copy(0, "-", {entry: raw.decode() for entry, raw in zip(entries, values, strict=True) if raw})

    def fence(self) -> int:
        """Get a new fence from Redis, for an author without a lane whose update must supersede earlier updates."""
        return fence_next(self.store)

    def update(
        self,
        changes: Mapping[str, object],
        *,
        fence: int | None = None,
        expect: Copy | None = None,
        write_back: bool = True,
        who: str = "",
        why: str = "",
        timeout: float = 10.0,
        update_id: str = "",
        act: str = "",
    ) -> int:
        """Change entries (None removes one). Returns the version with the update, once all members have it on disk.

        `fence`: of the author's job; raises StaleFence if an entry has a greater one. None: each entry keeps its fence.
        `expect`: the copy that the author read; raises Changed if one of these entries differs from the copy by now.
        `write_back` False: the permanent store has the changes already. `who`, `why`: for the history. `update_id`: an
        id of the update, unique in the installation; "": a new one. `act`: an operator's command (`act_of`), which the
        commit writes into the audit trail. Raises UpdatePending after `timeout` seconds, and StoreUnavailable; then the
        outcome is unknown: call again with the same `update_id`. Raises ValueError or TypeError if a value is not JSON.
        """
        if not changes:
            return self.pointer()[0]
        update_id = update_id or uuid.uuid4().hex
        rows: Json = [
            [entry, text_of(value), "" if expect is None else expect.digest(entry)] for entry, value in changes.items()
        ]
        about = {"id": update_id, "fence": str(fence or ""), "changes": rows, "follow": write_back}
        update = text_of(about | {"who": who, "why": why} | ({"act": act} if act else {})).encode()
        deadline = time.monotonic() + timeout
        while True:
            outcome = document_ask(self.store, self.name, update)
            if outcome != "asked":
                return self._version_of(outcome)
            if (left := deadline - time.monotonic()) <= 0:
                raise UpdatePending(self.name, update_id)
            answer = listen(self.store, update_id, left)
            if answer is not None and answer != b"asked":  # "asked": the update must be sent to Redis again
                return self._version_of(answer.decode())

    def _version_of(self, outcome: str) -> int:
        """Return the version with an update. `outcome`: what `document_ask` returned. Raises StaleFence, Changed."""
        verdict, _, rest = outcome.partition(" ")
        number, _, entry = rest.partition(" ")
        if verdict == "stale":
            raise StaleFence(self.name, entry, int(number))
        if verdict == "changed":
            raise Changed(f"document {self.name}: {entry} has changed since it was read")
        return int(number)

    def behind(self, *entries: str) -> dict[str, int]:
        """Return the entries that the permanent store lacks, with the version of each one's last change.

        `entries`: look at these only; without arguments, at all.
        """
        if entries:
            versions = self.store.read("HMGET", self._key("behind"), *entries)
            return {entry: int(version) for entry, version in zip(entries, versions, strict=True) if version}
        behind = self.store.read("HGETALL", self._key("behind"))
        return {entry.decode(): int(version) for entry, version in behind.items()}

    def followed(self, entry: str, version: int) -> bool:
        """Store that the permanent store has an entry as it was at this version.

        Returns False if the entry has changed since, or this was stored before.
        """
        return document_followed(self.store, self.name, entry, version)

    def run(self) -> str:
        """Return Redis' run id, which differs after each restart; a restarted Redis may have lost its last writes."""
        return str(self.store.read("INFO", "server")["run_id"])

    def stored(self, *names: str) -> dict[str, str]:
        """Return the notes about the permanent store, by name, each as JSON. `names`: only these; without, all."""
        if names:
            notes = self.store.read("HMGET", self._key("stored"), *names)
            return {name: note.decode() for name, note in zip(names, notes, strict=True) if note}
        notes = self.store.read("HGETALL", self._key("stored"))
        return {name.decode(): note.decode() for name, note in notes.items()}

    def stored_of(self, name: str) -> Any:
        """Return the note about the permanent store that has this name, or None."""
        note = self.store.read("HGET", self._key("stored"), name)
        return loads(note) if note else None

    def note(self, name: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> bool:
        """Replace the note `before` about the permanent store by `after` (None: no note).

        Returns False, and changes nothing, if the note is another than `before` by now.
        """
        was, is_now = ("" if note is None else text_of(note) for note in (before, after))
        return document_note(self.store, self.name, name, was, is_now)

    def unseen(self) -> list[tuple[str, ...]]:
        """Return the Redis commands that make the permanent store count as a new one, which lacks all entries."""
        copy = self.fetch()
        lacking = [part for entry in copy.entries() for part in (entry, str(copy.version))]
        return [("DEL", self._key("stored")), *([("HSET", self._key("behind"), *lacking)] if lacking else [])]

    def history(self) -> list[Commit]:
        """Read the last 100 updates from Redis, the newest first."""
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
        """Raise NotInReplicaSet if this node is out of the replica set, so that its copy may be old.

        Never raises in a process that keeps no copies.
        """
        if self.copies is None:
            return
        if not self.store.read("SISMEMBER", self._key("replicas"), self.copies.member):
            raise NotInReplicaSet(self.name, self.copies.owner)

    def members(self) -> list[str]:
        """Return the names of the nodes and beats in the replica set."""
        return self.replica_set.members()

    def _key(self, kind: str) -> str:
        return self.store.key(kind, self.name)


def _pointer(text: bytes | None) -> tuple[int, str]:
    """Split the pointer as Redis has it into the number of the version and its checksum."""
    version, _, sha = (text or b"0 -").decode().partition(" ")
    return int(version), sha
