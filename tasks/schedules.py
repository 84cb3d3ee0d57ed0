"""The schedule entries of members: each member has an entry and a lane of the same name."""

import logging
from collections.abc import Iterator
from datetime import tzinfo
from functools import cache

from coordinator import Entry, SubmitOptions
from tasks.app import NODELIST_LABEL
from tasks.harvest.asked import TICK
from tasks.member_node.member import scheduled
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.service import service

logger = logging.getLogger(__name__)

SYNC = "tasks.sync.sync_member_node"


def lane_of(member_id: str) -> str:
    """The key of a member's lane, and the name of its schedule entry."""
    return f"sync/{member_id}"


def entries() -> tuple[str, Iterator[Entry]]:
    """The nodelist's version, and a schedule entry for each member that can be synchronized. Beats call this."""
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
        # A tick during a running sync adds at most one more sync, of every change.
        options: SubmitOptions = {"merge_args": {"asked": [TICK]}, "needs": [NODELIST_LABEL]}
        yield Entry(name, schedule, SYNC, (member.identifier,), key=name, when_busy="defer", submit=options)


@cache
def _warn_once(sentence: str) -> None:
    logger.warning(sentence)
