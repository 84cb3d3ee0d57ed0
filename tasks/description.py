"""Takes in what members say of themselves: their own descriptions, read once a day and on request.

A member may change the fields of TASKS_MEMBER_MAY by itself, its schedule within TASKS_OFTENEST. A change of another
field is a proposal, which an operator accepts or refuses (tasks/members/acts.py). What the coordinating nodes noted is
none of its business (tasks/member_node/changes.py). A run that dies leaves all to the next one, which compares anew.
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
from tasks.nodelist.entries import Kept, Proposal, lines_of
from tasks.nodelist.stores import Listed
from tasks.service import service
from tasks.settings import Settings

LONGEST = 64 * 1024  # bytes of a description, which every node keeps
SHOWN = 500  # characters of the line in the audit trail
TICKS = 100  # ticks of a schedule, among which the shortest pause is looked for


def lane_of(member_id: str) -> str:
    """The key of the lane in which a member's description is read: not that of its syncs, which may be long."""
    return f"describe/{member_id}"


def ask(member_id: str) -> Submission:
    """Have the member's description read."""
    signature = describe_member.s(member_id)
    return coordinator.submit(lane_of(member_id), signature, when_busy="defer", needs=[NODELIST_LABEL])


@app.task(name="tasks.description.describe_members")
def describe_members() -> list[str]:
    """Have the description of each approved member read, also of one that is down. Returns their ids."""
    names = [member.identifier for member in service().nodelist.members() if member.type == "mn"]
    for member_id in names:
        ask(member_id)
    return names


@app.task(name="tasks.description.describe_member", throws=(MemberNodeError,))
def describe_member(member_id: str) -> dict[str, JsonValue]:
    """Read a member's description, take in what it may change, and keep the rest as proposals.

    Raises MemberNodeError where it does not answer, or where somebody else does.
    """
    here = service()
    listed = here.nodelist.listed().get(member_id)
    if listed is None or not listed.approved:
        return {"member": member_id, "outcome": "not approved"}
    job = current_job()
    try:
        described, lines = _read(listed.member, here.settings), list[str]()
    except MemberNodeError as error:
        if job:
            job.check()
        unread: Kept = {"undescribed": str(error)}
        here.nodelist.keep(member_id, lambda kept: {**kept, **unread}, why="its description cannot be read")
        raise
    if job:
        job.check()

    def to(before: Listed | None) -> Listed | None:
        after = before and before.model_copy(update={"member": _allowed(before.member, described, here.settings)})
        lines[:] = lines_of(member_id, before, after)
        return after

    here.nodelist.change(member_id, to, why="it describes itself so", by=member_id)
    if lines:
        after = ", ".join(line.removeprefix(f"{member_id}: ") for line in lines)[:SHOWN]
        coordinator.acted("describe", "member", member_id, id=uuid.uuid4().hex, after=after, by=member_id)
    waiting = propose(member_id, described)
    return {"member": member_id, "outcome": "described", "taken": [*lines], "waiting": [*waiting]}


def _read(member: Member, settings: Settings) -> Member:
    described = describe(member.base_url, settings, member.identifier)
    url = f"{member.base_url}/{described.api}/node"
    if described.identifier != member.identifier:
        raise Malformed(f"says that it is {described.identifier}", member.identifier, url, 200)
    if len(described.model_dump_json()) > LONGEST:
        raise TooLarge(f"describes itself with more than {LONGEST} bytes", member.identifier, url, 200)
    return described


def _allowed(member: Member, described: Member, settings: Settings) -> Member:
    """The member with what it may change by itself."""
    for field, to in changes(member, described).items():
        if field in settings.member_may and not _wants_an_operator(field, described, settings):
            member = put(member, field, to)
    return member


def _wants_an_operator(field: str, described: Member, settings: Settings) -> bool:
    if field == "subjects":
        return bool(service().nodelist.another(described.identifier, described.subjects))
    return field == "schedule" and _is_too_often(described, settings)


def _is_too_often(described: Member, settings: Settings) -> bool:
    """True where an operator has to look: the schedule is missing, cannot be read, or has short pauses."""
    schedule, ticks = scheduled(described, settings.zone), [instants.now()]
    if isinstance(schedule, str):
        return True
    while len(ticks) <= TICKS and (tick := schedule.next(ticks[-1])) is not None:
        ticks.append(tick)
    return any((after - before).total_seconds() < settings.oftenest for before, after in pairwise(ticks[1:]))


def propose(member_id: str, described: Member) -> list[str]:
    """Keep as proposals the fields in which a member describes itself otherwise than the list does.

    Returns those that wait for an operator. A refused one stays refused while the member says the same.
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

    nodelist.keep(member_id, to, why="it describes itself otherwise", by=member_id)
    return [field for field, proposal in new.items() if "refused" not in proposal]
