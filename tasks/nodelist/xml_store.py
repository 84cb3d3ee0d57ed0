"""The permanent store in a node-list document. Every member in it counts as approved."""

from collections.abc import Mapping
from pathlib import Path

from tasks.member_node import safe_xml
from tasks.nodelist.protocol import Dates
from tasks.nodelist.stores import Found, Listed, NodelistStoreAway, NodelistStoreRefused, Outdated, State
from tasks.nodelist.xml_file import XmlNodelist


class XmlStore:
    """The document cannot say that a member is not approved: a suspended member stays in it as it is."""

    keeps_approval = False

    def __init__(self, nodelist: XmlNodelist) -> None:
        self._nodelist = nodelist
        self.name = str(nodelist.path)

    def read(self) -> Found:
        members, bad = self._nodelist.listed()
        return Found({member.identifier: State(Listed(member=member)) for member in members}, frozenset(bad))

    def read_one(self, member_id: str) -> State | None:
        found = self.read()
        if member_id in found.bad:
            raise NodelistStoreRefused(f"{self.name}: its entry cannot be understood")
        return found.states.get(member_id)

    def write(self, member_id: str, base: State | None, wanted: Listed | None, whole: bool = False) -> State | None:
        now = self.read_one(member_id)
        if now != base and (now and now.listed) != (base and base.listed):
            raise Outdated(member_id)
        try:
            old, new = (one.member if one else None for one in (now and now.listed, wanted))
            alike = old and new and Dates().put_on(old) == Dates().put_on(new)
            if not alike and not self._nodelist.put(member_id, old, new):
                raise Outdated(member_id)
            was = Dates.of(old) if old else None
            if new and not self._nodelist.set_dates(member_id, was, Dates.of(new)):
                raise Outdated(member_id)
        except (safe_xml.Unreadable, OSError) as error:
            raise NodelistStoreAway(f"{self.name}: {error}") from error
        return self.read_one(member_id)

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        self._nodelist.import_file(path)
        return None
