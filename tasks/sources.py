"""The permanent store of the nodelist, which the nodes' document follows and is followed by: an XML document, or LDAP.

What it holds of one member is a State: what is listed, and a token by which a later write finds out whether that is
still so. A write is conditional: nothing that somebody else wrote since is lost.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from tasks import instants
from tasks.member import Member

WRITTEN = "written"
"""What is told of a change that the permanent store has; of another one the reason why not yet."""
DATES = ("last_harvested", "last_complete_harvest")


class Listed(BaseModel):
    """A member in the list. Who is not approved is not synchronized."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: Member
    approved: bool = True


class State(NamedTuple):
    """`token`: JSON."""

    listed: Listed
    token: Any = None


@dataclass(frozen=True)
class Found:
    """`bad`: ids of members that are there and cannot be understood; they are left as they were."""

    states: Mapping[str, State] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()


class SourceAway(Exception):
    """It cannot be reached or read now; the sentence says why."""


class SourceRefused(Exception):
    """It will not take this; the sentence says why."""


class Outdated(Exception):
    """A member is not as the writer believed: nothing that somebody else wrote was changed. Read it again."""


class Source(Protocol):
    """All of it raises SourceAway; writing, SourceRefused and Outdated."""

    name: str
    keeps_approval: bool
    """Whether it has a place for who is not approved."""

    def read(self) -> Found:
        """All members; names each bad entry in a warning."""
        ...

    def read_one(self, node_id: str) -> State | None: ...

    def write(self, node_id: str, base: State | None, wanted: Listed | None, whole: bool = False) -> State | None:
        """Make `wanted` of `base`, None = not there; what is there afterwards.

        `whole`: another writer may have been stopped in the midst of it; nothing of what it has left to do may arrive.
        """
        ...

    def replacement(self, path: Path) -> Mapping[str, Listed] | None:
        """What a node-list document would make of the list; None where it became the store itself."""
        ...


def merged(base: Listed | None, theirs: Listed | None, ours: Listed | None, fields: Collection[str]) -> Listed | None:
    """What somebody changed in the store since it was `base`, these fields, goes into ours; the rest of ours stays.

    A date is moved back by who moved it back in the store, a reset; else the later one stays.
    """
    if theirs is None or ours is None:
        return None if theirs is None or base is not None else theirs
    changes = {name: getattr(theirs.member, name) for name in Member.model_fields if name in fields}
    for name in changes.keys() & set(DATES):
        there, was, here = ((one and getattr(one.member, name)) or instants.NEVER for one in (theirs, base, ours))
        if there >= was and here > there:
            changes[name] = here
    approved = theirs.approved if "approved" in fields else ours.approved
    return Listed(member=ours.member.model_copy(update=changes), approved=approved)
