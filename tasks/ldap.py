"""The nodelist in LDAP: read whole, written by entry, never over what somebody else has written meanwhile.

* An entry's `entryCSN` names its state: it changes with each change. Every write asserts it (RFC 4528) and learns the
  next one from the answer (RFC 4527), so no search goes with a write. That holds with one writable server, not with
  several masters, of which each may take a write that the other's has overtaken.
* An LDAP server has no snapshots: a search in pages may see one entry before a change and the next one after another.
  So each reading is followed by a second look, at the CSNs alone. An entry that has the same one in both looks was so
  all the while, hence all those were so together at the instant between the looks; the members of the others are read
  again by themselves, until two looks at one agree.
* All of an entry's attributes change in one step, entries of a member one after the other: first the member's own,
  then those that stay, then the new ones, parents first, at last those that go. After each step the member can be read,
  and a writer that reads again goes on from there. The member's own entry is written each time, if only with what it
  has: so its CSN changes with whatever we change below it, and of a late writer nothing at all arrives, unless it was
  stopped after that entry: where one may have been, each entry is written (`whole`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from tasks.ldapconnection import Connection, dn_of, path_of
from tasks.ldapentries import BadEntry, entries_of, member_of
from tasks.ldaperrors import Conflict, LdapError, Refused, Unreachable
from tasks.ldapschema import APPROVED, CLASSES, LONGEST, NODE, Attributes, Path, changes, kind, rdn, weight
from tasks.member import Member
from tasks.settings import Settings

__all__ = ["Conflict", "Directory", "LdapEntry", "LdapError", "Reading", "Record", "Refused", "Unreachable"]

LOOKS = 5
"""A member that changes all the while is looked at so many times."""


@dataclass(frozen=True)
class LdapEntry:
    csn: str
    attributes: Attributes
    """All of them, those that we do not know included."""


@dataclass(frozen=True)
class Record:
    """One member as LDAP has it: all its entries, by DN."""

    member: Member
    approved: bool
    entries: Mapping[str, LdapEntry]


@dataclass(frozen=True)
class Reading:
    records: dict[str, Record] = field(default_factory=dict)
    """By member id."""
    problems: dict[str, str] = field(default_factory=dict)
    """A sentence about each entry that was left out, by member id; by DN where it has none of its own."""
    bad: set[str] = field(default_factory=set)
    """Ids of members of which something was left out."""


class Directory:
    """For one thread, over one connection. All of it raises Unreachable and Refused."""

    def __init__(self, settings: Settings) -> None:
        self._base = settings.ldap_base
        self._connection = Connection(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Reading:
        """Every member, approved or not, and every entry that is none."""
        self._connection.begin()
        try:
            found, stamps = self._looked_at(()), self._stamps(())
        except Conflict as error:
            raise Refused(self._base, (), "it is not there, or this account may not see it") from error
        states = {path: entry.csn for path, entry in found.items()}
        moved = {path[:1] for path in states.keys() | stamps.keys() if states.get(path) != stamps.get(path)}
        whole = _by_member({path: entry for path, entry in found.items() if path[:1] not in moved})
        reading = Reading()
        for top in sorted(moved):
            settled = self._settled(top)
            if settled is None:
                reading.problems[_name(top, self._dn(top))] = "it changed again and again while it was read"
                reading.bad.add(_name(top, ""))
            else:
                whole |= _by_member(settled)
        for entries in whole.values():
            self._take(entries, reading)
        return reading

    def read_one(self, node_id: str) -> Record | None:
        """None where there is no such member. Refused also where its entries are bad, or another one has its place."""
        self._connection.begin()
        top = (rdn("cn", node_id),)
        entries = self._settled(top)
        if entries is None:
            raise Refused(self._dn(top), (), "it changed again and again while it was read")
        reading = Reading()
        for found in _by_member(entries).values():
            self._take(found, reading)
        if reading.problems or reading.records.keys() - {node_id}:
            others = [f"it is the place of {other}: ids may not differ in case alone" for other in reading.records]
            raise Refused(self._dn(top), (), "; ".join([*reading.problems.values(), *others]))
        return reading.records.get(node_id)

    def write(self, node_id: str, base: Record | None, wanted: Member, approved: bool, whole: bool = False) -> Record:
        """Make `wanted` of `base`, which was read or written before; None: there is no such member yet.

        What did not change is not written; nothing changed is no operation. `whole`: all that is there is written, so
        that of a writer that was stopped in the midst of it nothing arrives later but an entry that is new.

        Raises Conflict when LDAP no longer is as `base` says: nothing of what somebody else wrote is lost, but entries
        before the one in conflict may be written.
        """
        if wanted.identifier != node_id or (base is not None and base.member.identifier != node_id):
            raise ValueError(f"{node_id} cannot become {wanted.identifier}: an id is for good")
        top = (rdn("cn", node_id),)
        if weight(node_id) > LONGEST:
            raise Refused(self._dn(top), ("cn",), "longer than the name of an entry may be")
        entries = {} if base is None else {path_of(dn, self._base): entry for dn, entry in base.entries.items()}
        top = next((path for path in entries if len(path) == 1), top)
        known = {path[1:]: entry.attributes for path, entry in entries.items()}
        made = entries_of(wanted, approved=approved, known=known)
        changed, added, vanished = changes(known, made, whole)
        if base is not None and not (changed or added or vanished):
            return base
        if base is not None:
            changed = {(): {APPROVED: made[()][APPROVED]}, **changed}
        self._connection.begin()
        for path, attributes in changed.items():
            old = entries[top + path]
            csn = self._connection.modify(self._dn(top + path), attributes, old.csn)
            merged = {name: values for name, values in {**old.attributes, **attributes}.items() if values}
            entries[top + path] = LdapEntry(csn, merged)
        for path, attributes in added.items():
            entries[top + path] = LdapEntry(self._added(top + path, attributes), attributes)
        for path in vanished:
            self._connection.delete(self._dn(top + path), entries.pop(top + path).csn)
        return Record(wanted, approved, {self._dn(path): entry for path, entry in entries.items()})

    def remove(self, node_id: str, base: Record) -> None:
        """Unapproved first, so that nobody takes what is left of it after a crash for a member; then the leaves."""
        entries = {path_of(dn, self._base): entry for dn, entry in base.entries.items()}
        top = next(path for path in entries if len(path) == 1)
        self._connection.begin()
        csn = self._connection.modify(self._dn(top), {APPROVED: ("FALSE",)}, entries[top].csn)
        for path in sorted(entries, key=lambda path: (-len(path), path)):
            self._connection.delete(self._dn(path), csn if path == top else entries[path].csn)

    def _added(self, path: Path, attributes: Attributes) -> str:
        try:
            return self._connection.add(self._dn(path), attributes)
        except Conflict as error:
            if len(path) == 1 and self.read_one(path[0][0][1]) is None:
                raise Refused(
                    self._dn(path), (), "an entry of another kind has its place, or there is no base"
                ) from error
            raise

    def _dn(self, path: Path) -> str:
        return dn_of(path, self._base)

    def _looked_at(self, top: Path) -> dict[Path, LdapEntry]:
        """`top` and all below it."""
        found = {}
        for dn, attributes in self._connection.search(self._dn(top), CLASSES, ["*", "entryCSN"]):
            kept = {name: values for name, values in attributes.items() if name != "entryCSN"}
            csn = next(iter(attributes.get("entryCSN", ())), "")
            if not csn:
                raise Refused(dn, ("entryCSN",), "the server does not tell it; this account must be able to read it")
            found[path_of(dn, self._base)] = LdapEntry(csn, kept)
        return found

    def _stamps(self, top: Path) -> dict[Path, str]:
        found = self._connection.search(self._dn(top), CLASSES, ["entryCSN"])
        return {path_of(dn, self._base): attributes["entryCSN"][0] for dn, attributes in found}

    def _settled(self, top: Path) -> dict[Path, LdapEntry] | None:
        """None if no two looks agreed."""
        try:
            for _ in range(LOOKS):
                found = self._looked_at(top)
                if {path: entry.csn for path, entry in found.items()} == self._stamps(top):
                    return found
        except Conflict:  # there is nothing at all
            return {}
        return None

    def _take(self, entries: dict[Path, LdapEntry], reading: Reading) -> None:
        """Into the records, or among the problems."""
        top = min(entries, key=len)
        node = entries[top].attributes
        own = {path[1:]: entry.attributes for path, entry in entries.items()}
        node_id = next(iter(node.get("d1NodeId", ())), "")
        if len(top) != 1 or kind((), node) != NODE:
            for path in entries:
                reading.problems[self._dn(path)] = "it belongs to no member: they stand directly below the base"
            reading.bad.add(_name(top, ""))
        elif top[0] != rdn("cn", top[0][0][1]) or top[0][0][1].casefold() != node_id.casefold():
            reading.problems[self._dn(top)] = f"its name is not its d1NodeId, {node_id or 'which is missing'}"
            reading.bad.add(_name(top, ""))
        else:
            try:
                member, approved = member_of(own)
            except BadEntry as error:
                reading.problems[node_id] = f"{self._dn(top + error.path)}: {error}"
                reading.bad.add(node_id)
            else:
                reading.records[node_id] = Record(
                    member, approved, {self._dn(path): entry for path, entry in entries.items()}
                )


def _by_member(entries: Mapping[Path, LdapEntry]) -> dict[Path, dict[Path, LdapEntry]]:
    grouped: dict[Path, dict[Path, LdapEntry]] = {}
    for path, entry in entries.items():
        grouped.setdefault(path[:1], {})[path] = entry
    return grouped


def _name(top: Path, dn: str) -> str:
    return top[0][0][1] if top and top[0][0][0] == "cn" else dn
