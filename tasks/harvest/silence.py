"""Backs off from a member that does not answer at all: its ticks do nothing for a growing time.

So a member that is dead or hangs keeps a slot for a few seconds now and then, and delays no other. Requests still run.
The catalog notes the beginning of the silence, and the instant until which ticks do nothing.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select, update

from tasks.catalog.catalog import Catalog, guard
from tasks.catalog.schema import members
from tasks.member_node.client import MemberTimedOut, MemberUnreachable
from tasks.settings import Settings

LONGEST = timedelta(minutes=15)
UNANSWERED = (MemberTimedOut, MemberUnreachable)


class Silence(NamedTuple):
    since: datetime
    until: datetime

    def __str__(self) -> str:
        since, until = (instant.isoformat(" ", "seconds") for instant in self)
        return f"it has not answered since {since} and is left alone until {until}, unless somebody asks for it"


def silence(catalog: Catalog, member: str) -> Silence | None:
    """The member's silence, whose `until` may have passed. None where it answered at its last run."""
    query = select(members.c.silent_since, members.c.alone_until).where(members.c.member == member)
    with catalog.engine.connect() as connection:
        row = connection.execute(query).first()
    return None if row is None or row.silent_since is None else Silence(row.silent_since, row.alone_until)


def after(
    error: Exception,
    delivered: bool,
    catalog: Catalog,
    member: str,
    *,
    fence: int,
    now: datetime,
    settings: Settings,
) -> None:
    """Note a silence, or its end, after a failed run. `delivered`: the member sent something in it.

    The member is left alone for as long as it has been silent, plus half of `failure_delay`. So the time doubles.
    """
    if delivered:
        end(catalog, member, fence=fence)
    elif isinstance(error, UNANSWERED):
        known = silence(catalog, member)
        since = known.since if known else now
        until = now + min(LONGEST, now - since + timedelta(seconds=settings.failure_delay / 2))
        _note(catalog, member, fence, since, until)


def end(catalog: Catalog, member: str, *, fence: int) -> None:
    """Note that the member answers. Raises Superseded."""
    if silence(catalog, member) is not None:
        _note(catalog, member, fence, None, None)


def _note(catalog: Catalog, member: str, fence: int, since: datetime | None, until: datetime | None) -> None:
    """Raises Superseded."""
    with catalog.engine.begin() as connection:
        guard(connection, member, fence)
        values = {"silent_since": since, "alone_until": until}
        connection.execute(update(members).where(members.c.member == member).values(values))
