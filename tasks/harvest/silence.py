"""Backs off from a member that does not answer at all: its scheduled syncs do nothing for a growing time.

So a dead member takes a slot for a few seconds now and then, and does not delay other members. Syncs that users request
still run. The catalog notes when the silence began, and until when scheduled syncs do nothing.
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
        return f"it has not answered since {since} and is left alone until {until}, unless a user requests a sync"


def silence(catalog: Catalog, member: str) -> Silence | None:
    """Read from the catalog how long the member has been silent; None: it answered in its last run.

    The `until` of the result may have passed already.
    """
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
    """Note in the catalog, after a failed run, that the member is silent, or that its silence has ended.

    `error`: why the run failed. `delivered`: the member sent something in that run. The back-off lasts as long as the
    silence so far, plus half of `failure_delay`, at most LONGEST. So it about doubles each time.
    """
    if delivered:
        end(catalog, member, fence=fence)
    elif isinstance(error, UNANSWERED):
        known = silence(catalog, member)
        since = known.since if known else now
        until = now + min(LONGEST, now - since + timedelta(seconds=settings.failure_delay / 2))
        _note(catalog, member, fence, since, until)


def end(catalog: Catalog, member: str, *, fence: int) -> None:
    """Note in the catalog that the member answers again. Raises Superseded for a fence that is out of date."""
    if silence(catalog, member) is not None:
        _note(catalog, member, fence, None, None)


def _note(catalog: Catalog, member: str, fence: int, since: datetime | None, until: datetime | None) -> None:
    """Store the dates of a silence; None: there is none. Raises Superseded for a fence that is out of date."""
    with catalog.engine.begin() as connection:
        guard(connection, member, fence)
        values = {"silent_since": since, "alone_until": until}
        connection.execute(update(members).where(members.c.member == member).values(values))
