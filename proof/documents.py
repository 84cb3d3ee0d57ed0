"""A replicated document as a load: three members with faults, and clients that change it and read it."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.errors import StoreUnavailable
from proof.members import Members
from proof.witness import Witness
from tasks.documents.copy import Copy
from tasks.documents.document import Document
from tasks.documents.errors import StaleFence
from tasks.documents.on_disk import Copies
from tests.tasks.documents.replica_set import NAME

PREFIX, MEMBERS = "documents", ("a", "b", "c")


class Author:
    """A client's part: it changes entries of its own, shared ones, and pairs that are always equal."""

    def __init__(self, url: str, root: Path, witness: Witness, name: str) -> None:
        self._store, self._root = Store(Settings.model_validate({"url": url, "prefix": PREFIX})), root
        self._witness, self._name = witness, name
        self._document = Document(self._store, NAME)

    def changes(self, lane: int, other: int, value: str) -> dict[str, object]:
        number = lane % 3
        entries = ([f"own:{self._name}:{number}"], [f"shared:{number}"], [f"left:{number}", f"right:{number}"])
        return dict.fromkeys(entries[other % 3], value)

    def update(self, changes: dict[str, object], update_id: str) -> None:
        """Raises StoreUnavailable; may be repeated."""
        try:
            fence = self._document.fence()
            version = self._document.update(changes, fence=fence, who=self._name, update_id=update_id, timeout=10)
        except StaleFence:
            self._witness.note("fail", "update", id=update_id)
        else:
            self._witness.note("ok", "update", id=update_id, version=version, changes=changes)

    def read(self) -> None:
        """Read on each member, as other processes of its node do."""
        for member in MEMBERS:
            self._witness.note("invoke", "read", member=member)
            try:
                before, copy, after = self._is_in_set(member), self._readers[member].read(), self._is_in_set(member)
            except StoreUnavailable:
                self._witness.note("fail", "read", member=member)
            else:
                self._witness.note("ok", "read", is_in_set=before and after, **seen_on(member, copy))

    def _is_in_set(self, member: str) -> bool:
        return member in self._document.members()

    @cached_property
    def _readers(self) -> dict[str, Document]:
        return {one: Document(self._store, NAME, Copies(self._root / one, NAME)) for one in MEMBERS}


def seen_on(member: str, copy: Copy) -> dict[str, Any]:
    """A copy as noted in the history. `halves`: pairs whose values differ."""
    halves = [number for number in range(3) if copy.value(f"left:{number}") != copy.value(f"right:{number}")]
    return {"member": member, "version": copy.version, "sha": copy.sha, "stale": copy.stale, "halves": halves}


def final(members: Members) -> Iterator[dict[str, Any]]:
    """The copy of each member once all agree."""
    members.agree(60)
    for member in members.all:
        copy = member.disk()
        assert copy
        yield {**seen_on(member.name, copy), "state": {entry: copy.value(entry) for entry in copy.state}}
