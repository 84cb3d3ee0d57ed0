"""The service leaves a member that does not answer at all alone, for longer and longer, unless somebody asks for it.

So a member that is dead or hangs keeps a slot for a few seconds now and then, and delays no other. The catalog keeps a
silence beside the cursors of the passes, under their fence: `started_from` is its beginning, and ticks before
`position` do nothing.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from tasks.catalog.catalog import Catalog, Cursor
from tasks.member_node.client import MemberTimedOut, MemberUnreachable
from tasks.settings import Settings

LONGEST = timedelta(minutes=15)
UNANSWERED = (MemberTimedOut, MemberUnreachable)
_KIND = "silence"


class Silence(NamedTuple):
    since: datetime
    until: datetime

    def __str__(self) -> str:
        since, until = (instant.isoformat(" ", "seconds") for instant in self)
        return f"it has not answered since {since} and is left alone until {until}, unless somebody asks for it"


def silence(catalog: Catalog, member: str) -> Silence | None:
    """The last silence, though its `until` may have passed. None where the member answered at its last run."""
    found = catalog.cursor(member, _KIND)
    return None if found is None else Silence(found.started_from, found.position)


def after(
    error: Exception, ever: bool, catalog: Catalog, member: str, *, fence: int, now: datetime, settings: Settings
) -> None:
    """A run failed. `ever`: the member delivered something before; then it is no silent member.

    It is left alone for as long as it has been silent, and half of `failure_delay`. So the time doubles.
    """
    if ever:
        end(catalog, member, fence=fence)
    elif isinstance(error, UNANSWERED):
        known = silence(catalog, member)
        since = known.since if known else now
        until = now + min(LONGEST, now - since + timedelta(seconds=settings.failure_delay / 2))
        catalog.store(member, fence=fence, cursor=Cursor(_KIND, since, until), now=now)


def end(catalog: Catalog, member: str, *, fence: int) -> None:
    if silence(catalog, member) is not None:
        catalog.finish(member, _KIND, fence=fence)
