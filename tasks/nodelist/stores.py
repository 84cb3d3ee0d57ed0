"""The interface of the nodelist's permanent stores, an XML document or LDAP; reconcile.py keeps them up to date.

A store holds a State of each member: the member and a token. A write passes the token that its writer has read, so the
store notices if the member has changed since. So every write is conditional, and no change of others is lost.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from tasks import instants
from tasks.member_node.member import Member
from tasks.nodelist.protocol import DATES

logger = logging.getLogger(__name__)

Token = Mapping[str, tuple[str, Mapping[str, Sequence[str]]]]
"""The state of a member in LDAP, as JSON: by DN, the CSN and the attributes of each entry. The XML store has none."""


class Listed(BaseModel):
    """A member in the nodelist. The service synchronizes approved members only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: Member
    approved: bool = True


class State(NamedTuple):
    """A member as the permanent store has it. `token`: what a write must pass back; None: the store needs none."""

    listed: Listed
    token: Token | None = None


@dataclass(frozen=True)
class StoredMembers:
    """All members that a store could read. `states`: by id. `bad`: ids of members whose entries are invalid, so that
    neither their entries nor the nodelist change. `problems`: a sentence about each entry that was left out.
    """

    states: Mapping[str, State] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


class NodelistStoreAway(Exception):
    """Raised where the permanent store cannot be reached or read now; the message says why."""


class NodelistStoreRefused(Exception):
    """Raised where the permanent store refuses a change of a member, or cannot read it; the message says why."""


class Outdated(Exception):
    """The member has changed in the store since the writer read it, so the write was refused: read the member again."""


class Write(NamedTuple):
    """A write of one member: turn its state `base`, as read in the store, into `wanted`; None: the member is not there.

    `whole`: write also what is the same already. So no late operation of another writer, which may have been stopped
    midway, can change the member afterwards.
    """

    base: State | None
    wanted: Listed | None
    whole: bool = False


WriteOutcome = State | NodelistStoreRefused | Outdated | None
"""The result of a write: the member's new state (None: it was removed), or why it was not written."""


class NodelistStore(Protocol):
    """The methods of a permanent store. Each raises NodelistStoreAway; `read_one` also raises NodelistStoreRefused."""

    name: str
    keeps_approval: bool
    """True if the store can hold members that are not approved, and says so of each."""
    at_once: int
    """The most members to pass to one `write`: many where each write replaces the whole file."""

    def identity(self) -> str:
        """An id that is stored in the store itself, so that it does not depend on the address."""
        ...

    def read(self) -> StoredMembers:
        """Read all members from the store."""
        ...

    def read_one(self, member_id: str) -> State | None: ...

    def write(self, writes: Mapping[str, Write]) -> Mapping[str, WriteOutcome]: ...

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        """Read the members, by id, in a node-list document that is to replace the nodelist.

        None: the store is such a document itself, and has been replaced by it already.
        """
        ...


class OwnStore:
    """A permanent store that is checked before each use. `check(identity, name)`: raises for another installation's.

    `read` logs a warning once for each entry that is left out.
    """

    def __init__(self, store: NodelistStore, check: Callable[[str, str], None]) -> None:
        self.name, self.keeps_approval, self.at_once = store.name, store.keeps_approval, store.at_once
        self._store, self._check = store, check
        self._identity = ""
        self._warned: set[str] = set()

    def identity(self) -> str:
        self._identity = self._identity or self._store.identity()
        return self._identity

    def check(self) -> None:
        self._check(self.identity(), self.name)

    def read(self) -> StoredMembers:
        self.check()
        stored = self._store.read()
        for problem in stored.problems:
            if problem not in self._warned:
                self._warned.add(problem)
                logger.warning("nodelist in %s: an entry is left out: %s", self.name, problem)
        return stored

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
    """The committed member `ours`, with the fields `fields` of `theirs`. None: the member is not in the list.

    The store had the member as `base`; others have changed it to `theirs`. A harvest date goes back only if others set
    it back in the store, as for a reset. Otherwise the later date stays; so it does if the store has no date.
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
