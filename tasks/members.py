"""Members as the coordinator sees them: a lane each, and a schedule each."""

import logging
from collections.abc import Iterator
from datetime import tzinfo
from functools import cache

from coordinator.entries import Entry
from coordinator.quartz import Quartz, QuartzError
from tasks.member import Member
from tasks.nodelist import Nodelist
from tasks.service import service

logger = logging.getLogger(__name__)

SYNC = "tasks.sync.sync_member_node"


def lane_of(node_id: str) -> str:
    """The key of a member's lane, and the name of its schedule entry."""
    return f"sync/{node_id}"


def schedule_of(member: Member, zone: tzinfo) -> Quartz | None:
    """When to synchronize it; None where it names no schedule. Raises QuartzError, which says what is wrong."""
    return None if member.schedule is None else Quartz.from_parts(*member.schedule.parts, tz=zone)


def scheduled(member: Member, zone: tzinfo) -> Quartz | str:
    """When to synchronize it, or why no beat ever will."""
    try:
        return schedule_of(member, zone) or "the nodelist has no schedule for it"
    except QuartzError as error:
        return str(error)


def entries() -> tuple[str, Iterator[Entry]]:
    """The nodelist's version, and one entry for each member that is to be synchronized: a source of schedules."""
    here = service()
    return here.nodelist.version(), _entries(here.nodelist, here.settings.zone)


def _entries(nodelist: Nodelist, zone: tzinfo) -> Iterator[Entry]:
    for member in nodelist.members():
        if member.obstacle is not None:
            continue
        schedule = scheduled(member, zone)
        if isinstance(schedule, str):
            _say(f"{member.identifier} is not scheduled: {schedule}")
            continue
        if schedule.repaired:
            _say(f"{member.identifier}: schedule repaired: {schedule.repaired}")
        name = lane_of(member.identifier)
        # A tick while a sync waits or runs: one more at most, of everything.
        yield Entry(
            name, schedule, SYNC, (member.identifier,), key=name, when_busy="defer", submit={"unite": {"pids": None}}
        )


@cache
def _say(sentence: str) -> None:
    """Once."""
    logger.warning(sentence)
