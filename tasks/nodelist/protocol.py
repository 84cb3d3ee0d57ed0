"""The interface of the nodelist that a sync uses: the members, and the dates until which each was harvested."""

from datetime import datetime
from typing import NamedTuple, Protocol

from tasks import instants
from tasks.member_node.member import Member

WRITTEN = "written"
"""The result of a change that the permanent store has. Any other result is the reason why the store lacks it."""
SOON = "it is about to be written"
"""The usual reason why the permanent store lacks a change: a node writes the change within seconds."""
DATES = ("last_harvested", "last_complete_harvest")
"""The fields of Member that the syncs of the member change."""


class Dates(NamedTuple):
    """The dates until which a member was harvested, by any sync and by syncs of all objects; None: no such date."""

    last_harvested: datetime | None = None
    last_complete: datetime | None = None

    @classmethod
    def of(cls, member: Member) -> "Dates":
        return cls(member.last_harvested, member.last_complete_harvest)

    def put_on(self, member: Member) -> Member:
        return member.model_copy(update=dict(zip(DATES, self, strict=True)))

    def floored(self) -> "Dates":
        """These dates, cut down to the millisecond."""
        return Dates(*(date and instants.floor(date) for date in self))

    def or_else(self, other: "Dates") -> "Dates":
        """These dates, with the date of `other` where one is None."""
        return Dates(*(other if mine is None else mine for mine, other in zip(self, other, strict=True)))

    def begun_anew(self) -> "Dates":
        """The dates that let a member be harvested from its beginning: NEVER, or earlier than a date that was NEVER.

        So they always differ from these dates, and no sync resumes a pass through the listing that began before.
        """
        return Dates(*(min(instants.NEVER, (date or instants.NEVER) - instants.TICK) for date in self))

    def later(self, other: "Dates") -> "Dates":
        """For both dates, the later one of this and of `other`."""
        return Dates(*(_later(mine, theirs) for mine, theirs in zip(self, other, strict=True)))


def _later(this: datetime | None, other: datetime | None) -> datetime | None:
    return max((date for date in (this, other) if date is not None), default=None)


class Nodelist(Protocol):
    """The methods of a nodelist that a sync calls."""

    def member(self, member_id: str) -> Member | None: ...

    def harvested(
        self, member_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None
    ) -> str | None:
        """Commit new harvest dates of a member, unless they are earlier than its dates in the nodelist.

        Returns WRITTEN, or why the permanent store does not have the dates yet: the call does not wait for the store.
        Raises Superseded where a sync with a greater fence has committed dates already.

        `started_from`: the last_harvested when the sync began; None: do not compare. If the nodelist has another date
        by now, an operator has reset the member meanwhile: the call changes nothing and returns None.
        """
        ...
