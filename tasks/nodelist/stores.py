"""The permanent store of the nodelist: an XML document, or LDAP. The store and the nodes' document follow each other.

The store holds a State of each member: the member and a token. A later write shows that token, so that the store
finds out whether the member is still as the writer read it. So every write is conditional, and no change that somebody
else made since is lost.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from tasks import instants
from tasks.member_node.member import Member
from tasks.nodelist.protocol import DATES

Token = Mapping[str, tuple[str, Mapping[str, Sequence[str]]]]
"""JSON. LDAP's holds, by DN, the CSN and the attributes of each of the member's entries; XML needs none."""


class Listed(BaseModel):
    """A member in the list. The service synchronizes approved members only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: Member
    approved: bool = True


class State(NamedTuple):
    """A member as the store has it."""

    listed: Listed
    token: Token | None = None


@dataclass(frozen=True)
class StoredMembers:
    """All members in the store. `bad`: ids of members that cannot be understood; they stay as they are.

    `problems`: a sentence about each entry that was left out.
    """

    states: Mapping[str, State] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


class NodelistStoreAway(Exception):
    """The store cannot be reached or read now; the sentence says why."""


class NodelistStoreRefused(Exception):
    """The store does not accept this change; the sentence says why."""


class Outdated(Exception):
    """A member is not as the writer believed. Nobody else's change was overwritten: read the member again."""


class Write(NamedTuple):
    """Turn `base` into `wanted`; None stands for a member that is not there.

    `whole`: another writer may have been stopped midway. This write leaves nothing that a late operation of that
    writer could still change.
    """

    base: State | None
    wanted: Listed | None
    whole: bool = False


WriteOutcome = State | NodelistStoreRefused | Outdated | None
"""The member as it is after a write; or why there was none."""


class NodelistStore(Protocol):
    """Every method raises NodelistStoreAway. `read_one` also raises NodelistStoreRefused."""

    name: str
    keeps_approval: bool
    """True if the store has a place for members that are not approved."""
    at_once: int
    """The number of members that one `write` brings: many for a store that is written as a whole."""

    def identity(self) -> str:
        """Which store this is, whatever its address."""
        ...

    def read(self) -> StoredMembers:
        """All members. A warning names each bad entry."""
        ...

    def read_one(self, member_id: str) -> State | None: ...

    def write(self, writes: Mapping[str, Write]) -> Mapping[str, WriteOutcome]: ...

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        """The list that a node-list document asks for. None: the document has become the store itself."""
        ...


class OwnStore:
    """The permanent store of this installation. `check(identity, name)` raises where that is another one."""

    def __init__(self, store: NodelistStore, check: Callable[[str, str], None]) -> None:
        self.name, self.keeps_approval, self.at_once = store.name, store.keeps_approval, store.at_once
        self._store, self._check = store, check
        self._identity = ""

    def identity(self) -> str:
        self._identity = self._identity or self._store.identity()
        return self._identity

    def check(self) -> None:
        self._check(self.identity(), self.name)

    def read(self) -> StoredMembers:
        self.check()
        return self._store.read()

    def read_one(self, member_id: str) -> State | None:
        self.check()
        return self._store.read_one(member_id)

    def write(self, writes: Mapping[str, Write]) -> Mapping[str, WriteOutcome]:
        self.check()
        return self._store.write(writes)

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        self.check()
        return self._store.replacement(path)


def merged(base: Listed | None, theirs: Listed | None, ours: Listed | None, fields: Collection[str]) -> Listed | None:
    """Our member with these fields of theirs. The store had `base`; somebody has changed that into `theirs` since.

    A date goes back only when somebody moved it back in the store, as a reset does. Otherwise the later date stays,
    also where the store names none, such as a document from a registry.
    """
    if theirs is None or ours is None:
        return None if theirs is None or base is not None else theirs
    changes = {name: getattr(theirs.member, name) for name in Member.model_fields if name in fields}
    for name in changes.keys() & set(DATES):
        there, was, here = (
            (listed and getattr(listed.member, name)) or instants.NEVER for listed in (theirs, base, ours)
        )
        if changes[name] is None or (there >= was and here > there):
            changes[name] = getattr(ours.member, name)
    approved = theirs.approved if "approved" in fields else ours.approved
    return Listed(member=ours.member.model_copy(update=changes), approved=approved)
