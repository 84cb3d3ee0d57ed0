"""The permanent store in LDAP: a member's token holds all its entries as they were last read, with their CSNs."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

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

logger = logging.getLogger(__name__)


class LdapStore:
    """Uses one connection, for one thread at a time."""

    keeps_approval, at_once = True, 1

    def __init__(self, settings: Settings) -> None:
        self.name = settings.ldap_url
        self._directory = Directory(settings)
        self._one_at_a_time = threading.Lock()
        self._named: set[str] = set()

    def identity(self) -> str:
        try:
            with self._one_at_a_time:
                return self._directory.identity()
        except NodelistStoreRefused as error:
            raise NodelistStoreAway(str(error)) from error

    def read(self) -> StoredMembers:
        try:
            with self._one_at_a_time:
                reading = self._directory.read()
        except NodelistStoreRefused as error:
            raise NodelistStoreAway(str(error)) from error
        for name, problem in reading.problems.items():
            if (line := f"{name}: {problem}") not in self._named:
                self._named.add(line)
                logger.warning("nodelist in LDAP: %s; left out", line)
        problems = (f"{name}: {problem}" for name, problem in sorted(reading.problems.items()))
        return StoredMembers(reading.states, frozenset(reading.bad), tuple(problems))

    def read_one(self, member_id: str) -> State | None:
        with self._one_at_a_time:
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
        with self._one_at_a_time:
            if wanted is not None:
                return self._directory.write(member_id, base, wanted.member, wanted.approved, whole)
            if base is not None:
                self._directory.remove(member_id, base)
        return None

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        return {member.identifier: Listed(member=member) for member in read_nodelist(path).members}
