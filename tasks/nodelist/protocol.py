"""The nodelist as a synchronization uses it: its members, and the dates until which each was harvested."""

from datetime import datetime
from typing import NamedTuple, Protocol

from tasks import instants
from tasks.member_node.member import Member

WRITTEN = "written"
"""The answer when the permanent store has a change. Any other answer is the reason why it does not have it yet."""
SOON = "it is about to be written"
"""The usual reason: a node writes within seconds."""
DATES = ("last_harvested", "last_complete_harvest")
"""The fields of Member that its syncs change."""


class Dates(NamedTuple):
    """The dates until which a member was harvested, by increments and by complete passes. None: not named."""

    last_harvested: datetime | None = None
    last_complete: datetime | None = None

    @classmethod
    def of(cls, member: Member) -> "Dates":
        return cls(member.last_harvested, member.last_complete_harvest)

    def put_on(self, member: Member) -> Member:
        return member.model_copy(update=dict(zip(DATES, self, strict=True)))

    def floored(self) -> "Dates":
        """Cut down to the millisecond."""
        return Dates(*(date and instants.floor(date) for date in self))

    def or_else(self, other: "Dates") -> "Dates":
        """The other's dates where these are missing."""
        return Dates(*(other if mine is None else mine for mine, other in zip(self, other, strict=True)))

    def begun_anew(self) -> "Dates":
        """NEVER; a tick earlier where that is the date already. So no pass that a run has begun fits the dates."""
        return Dates(*(min(instants.NEVER, (date or instants.NEVER) - instants.TICK) for date in self))

    def later(self, other: "Dates") -> "Dates":
        """The later of both, for each date."""
        return Dates(*(_later(mine, theirs) for mine, theirs in zip(self, other, strict=True)))


def _later(this: datetime | None, other: datetime | None) -> datetime | None:
    return max((date for date in (this, other) if date is not None), default=None)


class Nodelist(Protocol):
    """The part that a sync needs."""

    def member(self, member_id: str) -> Member | None: ...

    def harvested(
        self, member_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None
    ) -> str | None:
        """Move a member's dates forward, never back. Raises Superseded where the nodelist has seen a greater fence.

        Returns WRITTEN, or the reason why the permanent store does not have the dates yet. It waits for no store.

        `started_from` is the last_harvested with which the run began. Where the list has another one by now, an
        operator has reset the member meanwhile: nothing is written, and the answer is None.
        """
        ...
