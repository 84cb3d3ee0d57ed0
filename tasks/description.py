"""Reads the description that each member serves of itself, daily and on request, and brings changes into the nodelist.

A member may change the fields in TASKS_MEMBER_MAY by itself; its schedule may not be more frequent than TASKS_OFTENEST.
A change of another field is a proposal, which an operator accepts or refuses (tasks/members/acts.py). The fields of
coordinating nodes are ignored (tasks/member_node/changes.py). A run that dies needs no repair: the next run compares
description and nodelist again.
"""

import uuid
from itertools import pairwise

from pydantic import JsonValue

from coordinator import Submission, current_job
from tasks import instants
from tasks.app import NODELIST_LABEL, app, coordinator
from tasks.member_node.changes import changes, put, value
from tasks.member_node.check import describe
from tasks.member_node.client import Malformed, MemberNodeError, TooLarge
from tasks.member_node.member import Member, scheduled
from tasks.member_node.rest import quota_of, resting
from tasks.nodelist.entries import Kept, Proposal, lines_of
from tasks.nodelist.stores import Listed
from tasks.service import service
from tasks.settings import Settings

LONGEST = 64 * 1024  # most bytes of a description, since every node keeps a copy of all descriptions
SHOWN = 500  # most characters of the changes in an entry of the audit trail
TICKS = 100  # number of future ticks of a proposed schedule whose pauses are checked


def lane_of(member_id: str) -> str:
    """The key of the lane of jobs that read a member's description. A sync, which may take long, has another lane."""
    return f"describe/{member_id}"


def ask(member_id: str) -> Submission:
    """Submit a job that reads the member's description."""
    signature = describe_member.s(member_id)
    return coordinator.submit(
        lane_of(member_id), signature, when_busy="defer", needs=[NODELIST_LABEL], uses=quota_of(member_id)
    )


@app.task(name="tasks.description.describe_members")
def describe_members() -> list[str]:
    """Submit a job for each approved member, in any state, that reads its description. Returns the members' ids."""
    names = [member.identifier for member in service().nodelist.members() if member.type == "mn"]
    for member_id in names:
        ask(member_id)
    return names


@app.task(name="tasks.description.describe_member", throws=(MemberNodeError,))
def describe_member(member_id: str) -> dict[str, JsonValue]:
    """Read a member's description, apply the changes that the member may make, and keep the others as proposals.

    Raises MemberNodeError if the member does not answer, or if a member with another id answers at that address.
    """
    current = service()
    listed = current.nodelist.listed().get(member_id)
    if listed is None or not listed.approved:
        return {"member": member_id, "outcome": "not approved"}
    job = current_job()
    try:
        with resting(member_id):
            described, lines = _read(listed.member, current.settings), list[str]()
    except MemberNodeError as error:
        if job:
            job.check()
        unread: Kept = {"undescribed": str(error)}
        current.nodelist.keep(member_id, lambda kept: {**kept, **unread}, why="its description cannot be read")
        raise
    if job:
        job.check()

    def to(before: Listed | None) -> Listed | None:
        after = before and before.model_copy(update={"member": _allowed(before.member, described, current.settings)})
        lines[:] = lines_of(member_id, before, after)
        return after

    current.nodelist.change(member_id, to, why="from its own description", by=member_id)
    if lines:
        after = ", ".join(line.removeprefix(f"{member_id}: ") for line in lines)[:SHOWN]
        coordinator.acted("describe", "member", member_id, id=uuid.uuid4().hex, after=after, by=member_id)
    waiting = propose(member_id, described)
    return {"member": member_id, "outcome": "described", "taken": [*lines], "waiting": [*waiting]}


def _read(member: Member, settings: Settings) -> Member:
    described = describe(member.base_url, settings, member.identifier)
    url = f"{member.base_url}/{described.api}/node"
    if described.identifier != member.identifier:
        raise Malformed(f"describes itself as {described.identifier}", member.identifier, url, 200)
    if len(described.model_dump_json()) > LONGEST:
        raise TooLarge(f"describes itself with more than {LONGEST} bytes", member.identifier, url, 200)
    return described


def _allowed(member: Member, described: Member, settings: Settings) -> Member:
    """The listed `member`, with the changes in `described`, its description, that need no operator's consent."""
    for field, to in changes(member, described).items():
        if field in settings.member_may and not _wants_an_operator(field, described, settings):
            member = put(member, field, to)
    return member


def _wants_an_operator(field: str, described: Member, settings: Settings) -> bool:
    if field == "subjects":
        return bool(service().nodelist.another(described.identifier, described.subjects))
    return field == "schedule" and _is_too_often(described, settings)


def _is_too_often(described: Member, settings: Settings) -> bool:
    """True if an operator must accept the schedule: it is missing, invalid, or more frequent than TASKS_OFTENEST."""
    schedule, ticks = scheduled(described, settings.zone), [instants.now()]
    if isinstance(schedule, str):
        return True
    while len(ticks) <= TICKS and (tick := schedule.next(ticks[-1])) is not None:
        ticks.append(tick)
    return any((after - before).total_seconds() < settings.oftenest for before, after in pairwise(ticks[1:]))


def propose(member_id: str, described: Member) -> list[str]:
    """Store as proposals, in the nodelist, the fields in which a member's description differs from its entry there.

    Returns the fields that wait for an operator. A refused proposal stays refused until the member describes another
    value of that field.
    """
    nodelist = service().nodelist
    new: dict[str, Proposal] = {}

    def to(kept: Kept) -> Kept:
        new.clear()
        if (listed := nodelist.listed().get(member_id)) is None:
            return {}
        known = kept.get("proposals", {})
        for field, after in changes(listed.member, described).items():
            new[field] = {"before": value(listed.member, field), "after": after}
            if (old := known.get(field)) and old["after"] == after and "refused" in old:
                new[field]["refused"] = old["refused"]
        return {**kept, "proposals": new, "undescribed": ""}

    nodelist.keep(member_id, to, why="its own description differs", by=member_id)
    return [field for field, proposal in new.items() if "refused" not in proposal]
