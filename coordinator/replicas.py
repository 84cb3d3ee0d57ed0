"""Documents: versioned, of many entries, on the disks of all nodes and beats, or of none.

    ask      an update waits in Redis; all that wait become the next version, whose number is a fence
    prepare  every member of the replica set writes that version to its disk, and reports its checksum
    commit   the last one's report moves the pointer: from then on every read gives it
    follow   what the permanent store lacks is listed, entry by entry, until it has it

Nobody leads: an update that was asked for is finished by whoever reports next, so an author's death changes nothing.
Each entry has the fence of its last change; an update with a smaller one is refused (`StaleFence`), and so is one whose
author read another state than it meets (`Changed`), which is how authors without a lane, operators, do without a fence.

A read asks the pointer first, one GET, and takes the version that it names from this machine's disk: it never goes
back, and never ahead of the other nodes. With Redis away, or where this machine was put out of the replica set, the
copy that it has is given, marked `stale`. Where there is none (a plain client, a node that just starts) Redis is read.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from kombu.utils.json import loads

from coordinator.copies import Copies, Copy, text_of
from coordinator.errors import Changed, StaleFence, StoreUnavailable, UpdatePending
from coordinator.store import Store


@dataclass(frozen=True, slots=True)
class Commit:
    """One update in a document's history. `at`: seconds since the epoch."""

    version: int
    at: float
    fence: int
    who: str
    why: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What lies on a member's disk: the version that it knows as committed, its checksum then, and the file's now."""

    version: int
    noted: str
    sha: str

    @property
    def damaged(self) -> bool:
        return self.noted != self.sha


class Document:
    """A document as this process sees it; `copies`: where its machine keeps it."""

    def __init__(self, store: Store, name: str, copies: Copies | None = None) -> None:
        self.store = store
        self.name = name
        self.copies = copies
        self._copy = Copy(0, "-", {})
        self._seen = 0  # the highest version that was read as the newest

    def read(self) -> Copy:
        """The newest, or what is here, marked stale. Raises StoreUnavailable with Redis away and nothing here."""
        if self.copies is None:
            return self._known(*self.pointer()) or self._newest(self.fetch())
        for _ in range(3):  # a version that was just superseded may be gone from the disk
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
        """The last that this machine knows as committed; None where there is none that can be read."""
        for _ in range(3):
            version, sha = copies.committed()
            if version and (found := self._known(version, sha) or copies.read(version, sha)):
                return replace(found, stale=True)
        return None

    def pointer(self) -> tuple[int, str]:
        """The committed version and its checksum; (0, "-") before there is one."""
        text = self.store.call(lambda: self.store.client.get(self._key("pointer"))) or b"0 -"
        version, _, sha = text.decode().partition(" ")
        return int(version), sha

    def fetch(self) -> Copy:
        """From Redis itself, for those who write or keep no copies."""

        def ask() -> Any:
            both = self.store.client.pipeline(transaction=True)
            both.get(self._key("pointer"))
            both.hgetall(self._key("document"))
            return both.execute()

        pointer, found = self.store.call(ask)
        version, _, sha = (pointer or b"0 -").decode().partition(" ")
        return Copy(int(version), sha, {entry.decode(): raw.decode() for entry, raw in found.items()})

    def current(self, *entries: str) -> Copy:
        """Some entries as they are committed, from Redis itself; version and checksum are left out."""
        found = self.store.call(lambda: self.store.client.hmget(self._key("document"), entries))
        return Copy(0, "-", {entry: raw.decode() for entry, raw in zip(entries, found, strict=True) if raw})

    def fence(self) -> int:
        """A new one, for an author who holds no lane and wants to be told from those before."""
        return int(self.store.run("fence_next"))

    def update(
        self,
        changes: Mapping[str, Any],
        *,
        fence: int | None = None,
        expect: Copy | None = None,
        follow: bool = True,
        who: str = "",
        why: str = "",
        timeout: float = 10.0,
        update_id: str = "",
    ) -> int:
        """Change entries, None = remove; the version that has it on every member of the replica set.

        `fence`: of the lane that the author holds; a greater one was seen: StaleFence. None: each entry keeps its own.
        `expect`: what the author read; where an entry is another by now, Changed.
        `follow` False: the permanent store has it already. `update_id`: unique in the installation.
        Raises UpdatePending(update_id) after `timeout` s, and StoreUnavailable: unknown, asking again with that id is
        safe. A value that is not JSON: ValueError or TypeError.
        """
        if not changes:
            return self.pointer()[0]
        update_id = update_id or uuid.uuid4().hex
        given = [
            [entry, text_of(value), "" if expect is None else expect.digest(entry)] for entry, value in changes.items()
        ]
        about = {"id": update_id, "fence": str(fence or ""), "changes": given, "follow": follow, "who": who, "why": why}
        asked = text_of(about).encode()
        deadline = time.monotonic() + timeout
        while True:
            outcome = self.store.run("document_ask", self.name, asked).decode()
            if outcome != "asked":
                return self._told(outcome)
            if (left := deadline - time.monotonic()) <= 0:
                raise UpdatePending(self.name, update_id)
            told = self._listen(update_id, min(left, 1.0, self.store.settings.timeout / 2))
            if told not in (None, "asked"):  # asked: to be asked again
                return self._told(told)

    def _listen(self, update_id: str, seconds: float) -> str | None:
        key = self.store.key("told", update_id)
        found = self.store.call(lambda: self.store.client.blpop([key], timeout=max(0.01, seconds)))
        return found[1].decode() if found else None

    def _told(self, outcome: str) -> int:
        verdict, _, rest = outcome.partition(" ")
        number, _, entry = rest.partition(" ")
        if verdict == "stale":
            raise StaleFence(self.name, entry, int(number))
        if verdict == "changed":
            raise Changed(f"document {self.name}: {entry} was changed meanwhile")
        return int(number)

    def behind(self, *entries: str) -> dict[str, int]:
        """What the permanent store lacks (of these entries): by entry, since which version."""
        if entries:
            some = self.store.call(lambda: self.store.client.hmget(self._key("behind"), entries))
            return {entry: int(version) for entry, version in zip(entries, some, strict=True) if version}
        found = self.store.call(lambda: self.store.client.hgetall(self._key("behind")))
        return {entry.decode(): int(version) for entry, version in found.items()}

    def followed(self, entry: str, version: int) -> bool:
        """The permanent store has the entry as of that version. False: it was changed since."""
        return bool(self.store.run("document_followed", self.name, entry, version))

    def run(self) -> str:
        """Which start of Redis serves now: another one may have lost its end."""
        return str(self.store.call(lambda: self.store.client.info("server"))["run_id"])

    def stored(self) -> dict[str, str]:
        """What the permanent store was last seen to have: by name, the notes' JSON, each as `text_of` writes it."""
        found = self.store.call(lambda: self.store.client.hgetall(self._key("stored")))
        return {name.decode(): note.decode() for name, note in found.items()}

    def stored_of(self, name: str) -> Any:
        note = self.store.call(lambda: self.store.client.hget(self._key("stored"), name))
        return loads(note) if note else None

    def note(self, name: str, before: Any, after: Any) -> bool:
        """Change one of them, None = none. False: it is not as it was `before`, nothing was changed."""
        texts = ["" if note is None else text_of(note) for note in (before, after)]
        return bool(self.store.run("document_note", self.name, name, *texts))

    def history(self) -> list[Commit]:
        """The last 100 updates, the newest first."""
        found = [loads(text) for text in self.store.call(lambda: self.store.client.lrange(self._key("history"), 0, 99))]
        return [
            Commit(
                int(one["version"]), one["at"] / 1000, int(one["fence"]), one["who"], one["why"], tuple(one["entries"])
            )
            for one in found
        ]

    def members(self) -> list[str]:
        """Who is in the replica set."""
        found = self.store.call(lambda: self.store.client.hkeys(self._key("replicas")))
        return sorted(member.decode() for member in found)

    def look(self, expected: Set[str], seconds: float = 2.0) -> dict[str, OnDisk]:
        """Have each member read its disk now: by member, what lies there. One that is damaged fetches another copy.

        Waits until all who are `expected` have answered, at most so many seconds; who kept silent is not in it.
        """
        look_id, found = uuid.uuid4().hex, dict[str, OnDisk]()
        self.store.call(lambda: self.store.client.publish(self._key("replica"), f"look {look_id}"))
        deadline = time.monotonic() + seconds
        while not expected <= found.keys() and (left := deadline - time.monotonic()) > 0:
            if told := self._listen(look_id, min(left, 1.0, self.store.settings.timeout / 2)):
                member, version, noted, sha = loads(told)
                found[member] = OnDisk(version, noted, sha)
        return found

    def _key(self, kind: str) -> str:
        return self.store.key(kind, self.name)
