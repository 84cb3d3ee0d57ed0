"""The permanent store in a node-list document: all that it lists are approved."""

from collections.abc import Mapping
from pathlib import Path

from tasks import documents
from tasks.catalog import Dates
from tasks.member import Member
from tasks.nodelist import XmlNodelist
from tasks.sources import DATES, Found, Listed, Outdated, SourceAway, State


class XmlSource:
    """A document has no place for who is not approved: a suspended member stays in it as it is."""

    keeps_approval = False

    def __init__(self, nodelist: XmlNodelist) -> None:
        self._nodelist = nodelist
        self.name = str(nodelist.path)

    def read(self) -> Found:
        return Found({member.identifier: State(Listed(member=member)) for member in self._nodelist.members()})

    def read_one(self, node_id: str) -> State | None:
        member = self._nodelist.member(node_id)
        return None if member is None else State(Listed(member=member))

    def write(self, node_id: str, base: State | None, wanted: Listed | None) -> State | None:
        now = self.read_one(node_id)
        if now != base and (now and now.listed) != (base and base.listed):
            raise Outdated(node_id)
        try:
            if now is None or wanted is None or _but_dates(now.listed.member) != _but_dates(wanted.member):
                self._nodelist.put(node_id, None if wanted is None else wanted.member)
            if wanted is not None:
                old = _dates(now.listed.member) if now else None
                if not self._nodelist.set_dates(node_id, old, _dates(wanted.member)):
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
