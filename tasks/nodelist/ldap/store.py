"""The nodelist's permanent store in LDAP. The token of a member's state holds the entries as last read, with CSNs."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tasks.nodelist.ldap.directory import Directory
from tasks.nodelist.stores import (
    Listed,
    NodelistStoreAway,
    NodelistStoreRefused,
    Outdated,
    State,
    StoredMembers,
    Write,
    WriteOutcome,
)
from tasks.nodelist.xml_format import read_nodelist
from tasks.settings import Settings

Result = TypeVar("Result")


class LdapStore:
    """Keeps the members in LDAP, over one connection, which one thread at a time uses."""

    keeps_approval, at_once = True, 1

    def __init__(self, settings: Settings) -> None:
        self.name = settings.ldap_url
        self._directory = Directory(settings)
        self._lock = threading.Lock()

    def identity(self) -> str:
        return self._of_the_base(self._directory.identity)

    def read(self) -> StoredMembers:
        reading = self._of_the_base(self._directory.read)
        problems = (f"{name}: {problem}" for name, problem in sorted(reading.problems.items()))
        return StoredMembers(reading.states, frozenset(reading.bad), tuple(problems))

    def _of_the_base(self, call: Callable[[], Result]) -> Result:
        """Make a call that reads the base. A refusal raises NodelistStoreAway: a hidden base hides all members."""
        try:
            with self._lock:
                return call()
        except NodelistStoreRefused as error:
            raise NodelistStoreAway(str(error)) from error

    def read_one(self, member_id: str) -> State | None:
        with self._lock:
            return self._directory.read_one(member_id)

    def write(self, writes: Mapping[str, Write]) -> dict[str, WriteOutcome]:
        outcomes: dict[str, WriteOutcome] = {}
        for member_id, write in writes.items():
            try:
                outcomes[member_id] = self._write(member_id, *write)
            except (NodelistStoreRefused, Outdated) as error:
                outcomes[member_id] = error
        return outcomes

    def _write(self, member_id: str, base: State | None, wanted: Listed | None, whole: bool) -> State | None:
        with self._lock:
            if wanted is not None:
                return self._directory.write(member_id, base, wanted.member, wanted.approved, whole)
            if base is not None:
                self._directory.remove(member_id, base)
        return None

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        return {member.identifier: Listed(member=member) for member in read_nodelist(path).members}
