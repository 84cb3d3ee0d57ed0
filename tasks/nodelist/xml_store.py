"""The permanent store in a node-list document. Every member in it counts as approved."""

from collections.abc import Mapping
from pathlib import Path

from tasks.member_node import safe_xml
from tasks.nodelist.stores import (
    Found,
    Listed,
    NodelistStoreAway,
    NodelistStoreRefused,
    Outcome,
    Outdated,
    State,
    Write,
)
from tasks.nodelist.xml_file import XmlNodelist


class XmlStore:
    """The document cannot say that a member is not approved: a suspended member stays in it as it is."""

    keeps_approval, at_once = False, 1000

    def __init__(self, nodelist: XmlNodelist) -> None:
        self._nodelist = nodelist
        self.name = str(nodelist.path)

    def read(self) -> Found:
        members, bad, problems = self._nodelist.listed()
        states = {member.identifier: State(Listed(member=member)) for member in members}
        return Found(states, frozenset(bad), tuple(problems))

    def read_one(self, member_id: str) -> State | None:
        found = self.read()
        if member_id in found.bad:
            raise NodelistStoreRefused(f"{self.name}: its entry cannot be understood")
        return found.states.get(member_id)

    def write(self, writes: Mapping[str, Write]) -> dict[str, Outcome]:
        changes = {
            one: (base.listed.member if base else None, wanted.member if wanted else None)
            for one, (base, wanted, _) in writes.items()
        }
        try:
            written = self._nodelist.write(changes)
        except (safe_xml.Unreadable, OSError) as error:
            raise NodelistStoreAway(f"{self.name}: {error}") from error
        found = {one: State(Listed(member=member)) if member else None for one, member in written.items()}
        return {one: found[one] if one in found else Outdated(one) for one in writes}

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        self._nodelist.import_file(path)
        return None
