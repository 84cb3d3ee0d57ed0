"""Reads all members from LDAP and writes a member entry by entry; a write never overwrites the change of another.

* An entry's `entryCSN` changes with each change of the entry. Every write asserts the CSN that its writer knows (RFC
  4528), and the answer contains the next CSN (RFC 4527). So a write needs no search. This is safe with one writable
  server. With several, a server may accept a write although another server has already accepted a later write.
* An LDAP server has no snapshots: while a search goes page by page, entries change. So after each search, a second one
  reads the CSNs alone. Entries with the same CSN in both searches existed together at the instant between them. The
  other members are read again, one by one, until two searches for a member agree.
* One operation changes all attributes of one entry. A member's entries change one after the other: its own entry first,
  then other existing entries, then the new entries, parents first; the entries to delete come last. After each step the
  member can be read, and a writer that reads the member again can go on from there.
* Each write includes the member's own entry, even if nothing in that entry changes. So the CSN of that entry changes
  with every write, and a late write fails at that entry; unless its writer was stopped after that entry. In that case
  the next writer writes each entry of the member (`whole`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from tasks.member_node.member import Member
from tasks.nodelist.ldap.changes import changes
from tasks.nodelist.ldap.connection import HIDDEN, Connection, dn_of, path_of
from tasks.nodelist.ldap.entries import BadEntry, entries_of, member_of
from tasks.nodelist.ldap.errors import LdapConflict, LdapRefused, LdapUnreachable
from tasks.nodelist.ldap.schema import APPROVED, CLASSES, LONGEST, NODE, Attributes, Path, kind, rdn, size_of
from tasks.nodelist.stores import Listed, State
from tasks.settings import Settings

__all__ = ["Contents", "Directory", "LdapConflict", "LdapRefused", "LdapUnreachable"]

MOST_READS = 5
"""The most attempts to read a member that keeps changing."""


class LdapEntry(NamedTuple):
    csn: str
    attributes: Attributes
    """All attributes of the entry, also those that this program does not know."""


@dataclass(frozen=True)
class Contents:
    """The members in LDAP. `states`: by id; the token in a state holds all entries of the member, by DN."""

    states: dict[str, State] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """A sentence about each entry that was left out, by the id of the member; by DN where the entry has no id."""
    bad: set[str] = field(default_factory=set)
    """The ids of members that were left out because of their entries."""


class Directory:
    """Reads and writes the members in LDAP, for one thread. Every method raises LdapUnreachable and LdapRefused."""

    def __init__(self, settings: Settings) -> None:
        self._base = settings.ldap_base
        self._connection = Connection(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def identity(self) -> str:
        """The id of this LDAP directory: the entryUUID of the base entry, which is the same on replicas and copies."""
        self._connection.begin()
        try:
            return self._connection.unique(self._base)
        except LdapConflict as error:
            raise self._no_base() from error

    def _no_base(self) -> LdapRefused:
        return LdapRefused(self._base, (), "it does not exist, or this account may not see it")

    def read(self) -> Contents:
        """Read all members, approved or not, and a problem for each invalid entry."""
        self._connection.begin()
        try:
            entries, csns = self._read_entries(()), self._csns(())
        except LdapConflict as error:
            raise self._no_base() from error
        states = {path: entry.csn for path, entry in entries.items()}
        moved = {path[:1] for path in states.keys() | csns.keys() if states.get(path) != csns.get(path)}
        whole = _by_member({path: entry for path, entry in entries.items() if path[:1] not in moved})
        reading = Contents()
        for top in sorted(moved):
            stable = self._read_until_stable(top)
            if stable is None:
                reading.problems[_name(top, self._dn(top))] = "it kept changing while it was read"
                reading.bad.add(_name(top, ""))
            else:
                whole |= _by_member(stable)
        for entries in whole.values():
            self._add(entries, reading)
        return reading

    def read_one(self, member_id: str) -> State | None:
        """Read one member; None: LDAP has no such member.

        Raises LdapRefused also if the entries are invalid, or if they belong to a member whose id differs in case only.
        """
        self._connection.begin()
        top = (rdn("cn", member_id),)
        entries = self._read_until_stable(top)
        if entries is None:
            raise LdapRefused(self._dn(top), (), "it kept changing while it was read")
        reading = Contents()
        for entries_of_one in _by_member(entries).values():
            self._add(entries_of_one, reading)
        if reading.problems or reading.states.keys() - {member_id}:
            others = [f"{other} has its place: ids may not differ in case alone" for other in reading.states]
            raise LdapRefused(self._dn(top), (), "; ".join([*reading.problems.values(), *others]))
        return reading.states.get(member_id)

    def write(self, member_id: str, base: State | None, wanted: Member, approved: bool, whole: bool = False) -> State:
        """Turn a member's state `base`, read or written before, into `wanted`. None: there is no such member yet.

        Entries without a change are not written. `whole`: write every entry, so that late operations of a writer that
        was stopped midway can add entries, but change nothing else.

        Raises LdapConflict if LDAP no longer agrees with `base`: no change of others is lost, and some of the entries
        may have been written. Returns the new state.
        """
        if {wanted.identifier, base.listed.member.identifier if base else member_id} != {member_id}:
            raise ValueError(f"{member_id} cannot become {wanted.identifier}: an id never changes")
        top = (rdn("cn", member_id),)
        if size_of(member_id) > LONGEST:
            raise LdapRefused(self._dn(top), ("cn",), "the id is longer than the name of an entry may be")
        entries = self._entries(base)
        top = next((path for path in entries if len(path) == 1), top)
        known = {path[1:]: entry.attributes for path, entry in entries.items()}
        wanted_entries = entries_of(wanted, approved=approved, known=known)
        changed, added, vanished = changes(known, wanted_entries, whole)
        if base is not None and not (changed or added or vanished):
            return base
        if base is not None:
            changed = {(): {APPROVED: wanted_entries[()][APPROVED]}, **changed}
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
        return self._state(wanted, approved, entries)

    def remove(self, member_id: str, base: State) -> None:
        """Remove a member: first set it to not approved, then delete its entries, children first.

        So the entries that a crash leaves belong to no approved member. `base`: the state as it was read.
        """
        entries = self._entries(base)
        top = next(path for path in entries if len(path) == 1)
        self._connection.begin()
        csn = self._connection.modify(self._dn(top), {APPROVED: ("FALSE",)}, entries[top].csn)
        for path in sorted(entries, key=lambda path: (-len(path), path)):
            self._connection.delete(self._dn(path), csn if path == top else entries[path].csn)

    def _added(self, path: Path, attributes: Attributes) -> str:
        try:
            return self._connection.add(self._dn(path), attributes)
        except LdapConflict as error:
            if len(path) == 1 and self.read_one(path[0][0][1]) is None:
                raise LdapRefused(
                    self._dn(path), (), "an entry of another kind has its place, or the base does not exist"
                ) from error
            raise

    def _entries(self, base: State | None) -> dict[Path, LdapEntry]:
        """The entries by path in the token of a state. The token may have been stored as JSON, without tuples."""
        token = base.token if base and base.token else {}
        return {
            path_of(dn, self._base): LdapEntry(csn, {name: tuple(values) for name, values in attributes.items()})
            for dn, (csn, attributes) in token.items()
        }

    def _state(self, member: Member, approved: bool, entries: Mapping[Path, LdapEntry]) -> State:
        return State(
            Listed(member=member, approved=approved), {self._dn(path): entry for path, entry in entries.items()}
        )

    def _dn(self, path: Path) -> str:
        return dn_of(path, self._base)

    def _read_entries(self, top: Path) -> dict[Path, LdapEntry]:
        """Read the entry at the path `top` and all entries below, by path; `()`: all entries below the base."""
        entries = {}
        for dn, attributes in self._connection.search(self._dn(top), CLASSES, ["*", "entryCSN"]):
            kept = {name: values for name, values in attributes.items() if name != "entryCSN"}
            csn = next(iter(attributes.get("entryCSN", ())), "")
            if not csn:
                raise LdapRefused(dn, ("entryCSN",), HIDDEN)
            entries[path_of(dn, self._base)] = LdapEntry(csn, kept)
        return entries

    def _csns(self, top: Path) -> dict[Path, str]:
        entries = self._connection.search(self._dn(top), CLASSES, ["entryCSN"])
        return {path_of(dn, self._base): attributes["entryCSN"][0] for dn, attributes in entries}

    def _read_until_stable(self, top: Path) -> dict[Path, LdapEntry] | None:
        """Read a member's entries until two searches agree; None: they did not in MOST_READS attempts."""
        try:
            for _ in range(MOST_READS):
                entries = self._read_entries(top)
                if {path: entry.csn for path, entry in entries.items()} == self._csns(top):
                    return entries
        except LdapConflict:  # raised for "no such object", too: the directory has no entry at `top`, nor below
            return {}
        return None

    def _add(self, entries: dict[Path, LdapEntry], reading: Contents) -> None:
        """Add the member that has these entries to `reading`: to its states, or to its problems if they are invalid."""
        top = min(entries, key=len)
        node = entries[top].attributes
        own = {path[1:]: entry.attributes for path, entry in entries.items()}
        member_id = next(iter(node.get("d1NodeId", ())), "")
        if len(top) != 1 or kind((), node) != NODE:
            for path in entries:
                reading.problems[self._dn(path)] = "it belongs to no member: members stand directly below the base"
            reading.bad.add(_name(top, ""))
        elif top[0] != rdn("cn", top[0][0][1]) or top[0][0][1].casefold() != member_id.casefold():
            reading.problems[self._dn(top)] = f"its name differs from its d1NodeId, {member_id or 'which is missing'}"
            reading.bad.add(_name(top, ""))
        else:
            try:
                member, approved = member_of(own)
            except BadEntry as error:
                reading.problems[member_id] = f"{self._dn(top + error.path)}: {error}"
                reading.bad.add(member_id)
            else:
                reading.states[member_id] = self._state(member, approved, entries)


def _by_member(entries: Mapping[Path, LdapEntry]) -> dict[Path, dict[Path, LdapEntry]]:
    grouped: dict[Path, dict[Path, LdapEntry]] = {}
    for path, entry in entries.items():
        grouped.setdefault(path[:1], {})[path] = entry
    return grouped


def _name(top: Path, dn: str) -> str:
    return top[0][0][1] if top and top[0][0][0] == "cn" else dn
