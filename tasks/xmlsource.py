"""The permanent store in a node-list document: all that it lists are approved."""

from collections.abc import Mapping
from pathlib import Path

from tasks import documents
from tasks.catalog import Dates
from tasks.member import Member
from tasks.nodelist import XmlNodelist
from tasks.sources import DATES, Found, Listed, Outdated, SourceAway, SourceRefused, State


class XmlSource:
    """A document has no place for who is not approved: a suspended member stays in it as it is."""

    keeps_approval = False

    def __init__(self, nodelist: XmlNodelist) -> None:
        self._nodelist = nodelist
        self.name = str(nodelist.path)

    def read(self) -> Found:
        members, bad = self._nodelist.listed()
        return Found({member.identifier: State(Listed(member=member)) for member in members}, frozenset(bad))

    def read_one(self, node_id: str) -> State | None:
        found = self.read()
        if node_id in found.bad:
            raise SourceRefused(f"{self.name}: its entry cannot be understood")
        return found.states.get(node_id)

    def write(self, node_id: str, base: State | None, wanted: Listed | None, whole: bool = False) -> State | None:
        now = self.read_one(node_id)
        if now != base and (now and now.listed) != (base and base.listed):
            raise Outdated(node_id)
        try:
            old, new = (one.member if one else None for one in (now and now.listed, wanted))
            alike = old and new and _but_dates(old) == _but_dates(new)
            if not alike and not self._nodelist.put(node_id, old, new):
                raise Outdated(node_id)
            was = _dates(old) if old else None
            if new and not self._nodelist.set_dates(node_id, was, _dates(new)):
                raise Outdated(node_id)
        except (documents.Unreadable, OSError) as error:
            raise SourceAway(f"{self.name}: {error}") from error
        return self.read_one(node_id)

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        self._nodelist.import_file(path)
        return None


def _dates(member: Member) -> Dates:
    return Dates(*(getattr(member, name) for name in DATES))


def _but_dates(member: Member) -> Member:
    return member.model_copy(update=dict.fromkeys(DATES))
