"""The permanent store in LDAP. A member's token is what LDAP last had of it: all its entries, with their CSNs."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks import documents
from tasks.ldap import Directory, LdapEntry, Record
from tasks.ldaperrors import Conflict, LdapError, Refused
from tasks.nodelistxml import parse_nodelist
from tasks.settings import Settings
from tasks.sources import Found, Listed, Outdated, SourceAway, SourceRefused, State

logger = logging.getLogger(__name__)


class LdapSource:
    """One connection, for one thread at a time."""

    keeps_approval = True

    def __init__(self, settings: Settings) -> None:
        self.name = settings.ldap_url
        self._directory = Directory(settings)
        self._one_at_a_time = threading.Lock()
        self._named: set[str] = set()

    def read(self) -> Found:
        try:
            with self._asking():
                reading = self._directory.read()
        except SourceRefused as error:
            raise SourceAway(str(error)) from error
        for name, problem in reading.problems.items():
            if (said := f"{name}: {problem}") not in self._named:
                self._named.add(said)
                logger.warning("nodelist in LDAP: %s; left out", said)
        states = {node_id: _state(record) for node_id, record in reading.records.items()}
        return Found(states, frozenset(reading.bad))

    def read_one(self, node_id: str) -> State | None:
        with self._asking():
            record = self._directory.read_one(node_id)
        return None if record is None else _state(record)

    def write(self, node_id: str, base: State | None, wanted: Listed | None, whole: bool = False) -> State | None:
        record = None if base is None else _record(base)
        with self._asking():
            if wanted is not None:
                return _state(self._directory.write(node_id, record, wanted.member, wanted.approved, whole))
            if record is not None:
                self._directory.remove(node_id, record)
        return None

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        parsed = parse_nodelist(path.read_bytes())
        if not parsed.entries:
            raise documents.Unreadable(f"{path} names no member")
        return {member.identifier: Listed(member=member) for member in parsed.members}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with self._one_at_a_time:
            try:
                yield
            except Conflict as error:
                raise Outdated(str(error)) from error
            except Refused as error:
                raise SourceRefused(str(error)) from error
            except LdapError as error:
                raise SourceAway(str(error)) from error


def _state(record: Record) -> State:
    """Without a copy of what the entries hold: that of all members would be the most that a refresh makes."""
    token = {dn: [entry.csn, entry.attributes] for dn, entry in record.entries.items()}
    return State(Listed(member=record.member, approved=record.approved), token)


def _record(state: State) -> Record:
    entries: dict[str, Any] = {
        dn: LdapEntry(csn, {name: tuple(values) for name, values in attributes.items()})
        for dn, (csn, attributes) in state.token.items()
    }
    return Record(state.listed.member, state.listed.approved, entries)
