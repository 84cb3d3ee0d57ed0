"""Makes a schedule entry for each member that can be synchronized. The key of the member's lane is the entry's name."""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from functools import cache

from coordinator import Entry, SubmitOptions
from tasks.app import NODELIST_LABEL
from tasks.harvest.sync_request import TICK
from tasks.member_node.member import scheduled
from tasks.member_node.rest import quota_of
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.service import service

logger = logging.getLogger(__name__)

SYNC, MONTH = "tasks.sync.sync_member_node", "tasks.sync.sync_month"


def lane_of(member_id: str) -> str:
    """The key of the lane in which a member is synchronized; also the name of the member's schedule entry."""
    return f"sync/{member_id}"


def months_of(member_id: str) -> Entry:
    """The entry whose instants end the months of a member. It is paused: only its backfills run (members/acts.py)."""
    options: SubmitOptions = {"needs": [NODELIST_LABEL], "uses": quota_of(member_id)}
    name = f"months/{member_id}"
    return Entry(name, "0 0 0 1 * ?", MONTH, (member_id,), key=lane_of(member_id), submit=options)


def month_before(end: datetime) -> datetime:
    """The beginning of the month that ends at `end`."""
    return (end - timedelta(days=1)).replace(day=1)


def entries() -> tuple[str, Iterator[Entry]]:
    """Return a checksum of the nodelist, and a schedule entry for each member that can be synchronized.

    Beats call this repeatedly, and read the entries only where the checksum has changed.
    """
    current = service()
    return current.nodelist.version(), _entries(current.nodelist, current.settings.zone)


def _entries(nodelist: ReplicatedNodelist, zone: tzinfo) -> Iterator[Entry]:
    for member in nodelist.members():
        if member.obstacle is not None:
            continue
        schedule = scheduled(member, zone)
        if isinstance(schedule, str):
            _warn_once(f"{member.identifier} is not scheduled: {schedule}")
            continue
        if schedule.repaired:
            _warn_once(f"{member.identifier}: schedule repaired: {schedule.repaired}")
        name = lane_of(member.identifier)
        # Ticks during a running sync lead to one more sync, an increment.
        options: SubmitOptions = {
            "collect": {"how": "merge"}, "needs": [NODELIST_LABEL], "uses": quota_of(member.identifier)
        }  # fmt: skip
        yield Entry(name, schedule, SYNC, (member.identifier,), {"asked": [TICK]}, key=name, submit=options)


@cache
def _warn_once(sentence: str) -> None:
    logger.warning(sentence)
