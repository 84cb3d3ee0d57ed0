"""The operators' commands for members, such as `approve`. Each returns what it did, in sentences for people.

A command raises UnknownMember, or ValueError where it cannot be done. `acting`: the author and the reason.
"""

import hashlib
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Unpack

from coordinator import Author, UnknownJob
from coordinator.extending import Acting, Answer, Given, Option, Thing, act_of, author_of, refuses_viewers, verb
from tasks import instants
from tasks.app import coordinator
from tasks.catalog.former import purge as purge_catalog
from tasks.database import UnusableDatabase
from tasks.member_node import changes
from tasks.member_node.member import Member
from tasks.members.condition import SHOWN, UnknownMember, check_former, obstacle_of, proposals
from tasks.nodelist.entries import Kept, Proposal
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.replicated import ActOf
from tasks.nodelist.stores import Listed
from tasks.nodelist.xml_store import NodelistUnreadable
from tasks.schedules import lane_of, months_of
from tasks.service import service

MEMBER = Thing("member", ("member",), ("id",), ("MEMBER",), "/member")
PID = Option("pid", "Only this object, whatever its date.", "Only this object", metavar="PID")
COMPLETE = Option(
    "complete", "All objects from the member's beginning that the catalog lacks.", "What", bool, False,
    choices={"": "what has changed", "true": "everything from its beginning"},
)  # fmt: skip
SINCE = Option(
    "since", "A date in the first month, such as 2019-01-01.", argument=True, metavar="SINCE"
)  # fmt: skip
UNTIL = Option("until", "The date by which the last month has ended. Empty: now.", argument=True, metavar="[UNTIL]")
FIELDS = Option("fields", kind=list, default=(), argument=True, metavar="[FIELD]...", form="")


class ActReport(NamedTuple):
    """What a command did to a member, in sentences. `remark`: what else the operator should know; empty: nothing."""

    lines: list[str]
    remark: str = ""


def _told(_: object, given: Given, done: ActReport) -> Answer:
    lines = [*done.lines, *([done.remark] if done.remark else [])]
    return {"member": given["member"], "done": [*lines]}, "\n".join(lines)


def _asked(_: object, given: Given, job_id: str) -> Answer:
    name = given["member"]
    return {"member": name, "id": job_id}, f"asked for {name}; once a node has read the request, its job is {job_id}"


@verb(MEMBER, PID, COMPLETE, tell=_asked, name="member-refresh", command="refresh", title="Refresh", host=None)
def refresh(
    member: str, pid: str | None = None, *, complete: bool = False, job_id: str = "", **acting: Unpack[Acting]
) -> str:
    """Synchronize a member now.

    Returns the id of the sync's job; repeated calls with the same `job_id` lead to one sync. Raises UnknownMember, and
    ValueError for a member that cannot be synchronized. Where this process cannot read the nodelist, the node that
    receives the request checks the member.
    """
    from tasks import requests  # imported here to keep commands fast: it imports the tasks, which load httpx

    with suppress(NodelistUnreadable, UnusableDatabase):
        listed = service().nodelist.listed().get(member)
        if listed is None:
            raise UnknownMember(member)
        if obstacle := obstacle_of(listed):
            raise ValueError(f"{member} cannot be synchronized: {obstacle}")
    job_id = job_id or str(uuid.uuid4())
    what = f"object {pid}" if pid else "everything" if complete else "changes"
    coordinator.acted("refresh", "member", member, id=job_id, after=what, **acting)
    return requests.refresh(member, pid, acting.get("why"), complete=complete, job_id=job_id)


@verb(
    MEMBER, SINCE, UNTIL, tell=_told, name="member-backfill", command="members backfill", title="Harvest months again",
    host=None,
)  # fmt: skip
def backfill(member: str, since: str, until: str | None = None, **acting: Unpack[Acting]) -> ActReport:
    """Compare the objects of a member with the catalog, month for month, and fetch what it lacks: a complete pass over
    whole months, in UTC, one job for each.

    The months are instants of the entry `months/<member>`, which is stored and paused here, so that only backfills run
    it. A month that succeeded is not run again. Raises UnknownMember, InvalidJob, and ValueError for a member that
    cannot be synchronized.
    """
    listed = service().nodelist.listed().get(member)
    if listed is None:
        raise UnknownMember(member)
    if obstacle := obstacle_of(listed):
        raise ValueError(f"{member} cannot be synchronized: {obstacle}")
    entry, system = months_of(member), Author("the service", "system")
    coordinator.entries.put(entry, why="months of a member", by=system)
    coordinator.entries.pause(entry.name, why="only its backfills run", by=system)
    first, end = _ends(since), _ends(until) if until else None
    found = coordinator.entries.backfill(entry.name, first, end, **acting)
    name = entry.name
    stop = f"to stop it: coordinator schedule stop-backfill {name} --why TEXT"
    return ActReport([str(found).replace("instant", "month"), f"how far it is: coordinator schedule {name}", stop])


def _ends(text: str) -> datetime:
    """The first instant after a date: a month that ends at the date itself belongs to what is before it."""
    return instants.parse(text) + instants.TICK


@refuses_viewers
def add(described: Member, **acting: Unpack[Acting]) -> ActReport:
    """Add a member to the nodelist, not approved yet, as `described`. Raises ValueError if it is there already."""
    identifier = described.identifier

    def to(before: Listed | None) -> Listed:
        if before is not None:
            raise ValueError(f"not added: {identifier} is already in the list, at {before.member.base_url}")
        if another := service().nodelist.another(identifier, described.subjects):
            raise ValueError(f"not added: {another}")
        return Listed(member=Dates().put_on(described), approved=False)

    done = _done(f"{identifier} is in the list", _change("add", "added", identifier, to, acting), approved=False)
    done.lines.append(f"it is not synchronized yet; to approve it: coordinator members approve {identifier} --why TEXT")
    return done


@verb(MEMBER, tell=_told, name="member-approve", command="members approve", title="Approve", host=None)
def approve(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Approve a member, so that the service synchronizes it."""
    listed, far = _set_approved("approve", "approved", member, True, acting)
    obstacle = listed.member.obstacle
    still = f"{member} still cannot be synchronized: {obstacle}" if obstacle else ""
    return _done(f"{member} is approved", far)._replace(remark=still)


@verb(MEMBER, tell=_told, name="member-suspend", command="members suspend", title="Suspend", host=None)
def suspend(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Stop synchronizing a member, until it is approved again; the member stays in the nodelist."""
    _, far = _set_approved("suspend", "suspended", member, False, acting)
    return _done(f"{member} is suspended", far, approved=False)


def _set_approved(verb: str, did: str, member: str, approved: bool, acting: Acting) -> tuple[Listed, str]:
    """Approve or suspend a member. Returns the changed member, and whether the permanent store has the change."""

    def to(before: Listed | None) -> Listed:
        changed.append(_known(member, before).model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    far = _change(verb, did, member, to, acting)
    return changed[-1], far


@verb(MEMBER, tell=_told, name="member-reset", command="members reset", title="Reset", grave=True, host=None)
def reset(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Fetch all objects of a member again, whatever their dates, at the next synchronization of the member."""
    why, by = _why_and_by(acting)
    try:
        far = service().nodelist.reset(member, f"reset: {why}", by, _act("reset", member, acting))
    except KeyError:
        raise UnknownMember(member) from None
    return _done(f"{member} will be harvested from its beginning", far)


@verb(MEMBER, tell=_told, name="member-remove", command="members remove", title="Remove", grave=True, host=None)
def remove(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Take a member out of the nodelist, and cancel its syncs; the catalog keeps its objects."""
    current = service()

    def to(before: Listed | None) -> None:
        if before is None:
            check_former(member, current)

    far = _change("remove", "removed", member, to, acting)
    cancelled = sum(_cancel(job_id, acting) for job_id in coordinator.lane(lane_of(member)).jobs)
    done = _done(f"{member} is not in the list", far)
    if cancelled:
        done.lines.append(f"{cancelled} of its syncs {'is' if cancelled == 1 else 'are'} cancelled")
    if objects := current.catalog.summary(member).objects:
        done.lines.append(
            f"the catalog keeps its {objects} objects; to delete them: coordinator members purge {member}"
        )
    return done


@verb(
    MEMBER,
    FIELDS,
    tell=_told,
    name="member-accept",
    command="members accept",
    title="Accept what it proposes",
    host=None,
)
def accept(member: str, fields: Sequence[str] = (), **acting: Unpack[Acting]) -> ActReport:
    """Take over changes that a member's description proposes into the nodelist: those of FIELD, or all that wait."""
    chosen, (why, by) = _chosen(member, fields), _why_and_by(acting)

    def to(before: Listed | None) -> Listed:
        listed = _known(member, before)
        described = listed.member
        for field, proposal in chosen.items():
            if changes.value(described, field) != proposal["before"]:
                raise ValueError(f"the list's {field} was changed meanwhile: coordinator members refresh {member}")
            described = changes.put(described, field, proposal["after"])
        if "subjects" in chosen and (another := service().nodelist.another(member, described.subjects)):
            raise ValueError(f"not accepted: {another}. To leave it out: coordinator members refuse {member} subjects")
        return listed.model_copy(update={"member": described})

    far = service().nodelist.change(member, to, why=f"accepted: {why}", by=by)
    _settle("accept", member, chosen, acting)
    return _done(f"{member} has its own {', '.join(chosen)}", far)


@verb(MEMBER, FIELDS, tell=_told, name="member-refuse", command="members refuse", title="Refuse", host=None)
def refuse(member: str, fields: Sequence[str] = (), **acting: Unpack[Acting]) -> ActReport:
    """Refuse changes that a member's description proposes, those of FIELD or all, until it proposes another value."""
    chosen = _chosen(member, fields)
    _settle("refuse", member, chosen, acting)
    return ActReport([f"{member} keeps the list's {', '.join(chosen)}"])


def _chosen(member: str, fields: Sequence[str]) -> dict[str, Proposal]:
    nodelist = service().nodelist
    _known(member, nodelist.listed().get(member))
    known = proposals(member, nodelist.document.read(), refused=bool(fields))
    if not known or not known.keys() >= {*fields}:
        raise ValueError(f"{member} proposes {', '.join(known) or 'nothing'}")
    return {field: known[field] for field in fields or known}


def _settle(verb: str, member: str, chosen: dict[str, Proposal], acting: Acting) -> None:
    """Remove accepted proposals from the nodelist, or mark refused ones. `verb`: `accept` or `refuse`.

    `chosen`: the proposals by field, as they were read. A field that has another proposal by now stays as it is.
    """
    why, by = _why_and_by(acting)

    def to(kept: Kept) -> Kept:
        left = dict(kept.get("proposals", {}))
        for field, proposal in chosen.items():
            if field in left and left[field]["after"] == proposal["after"]:
                del left[field]
                if verb == "refuse":
                    left[field] = {"before": proposal["before"], "after": proposal["after"], "refused": f"{by}: {why}"}
        return {**kept, "proposals": left}

    before, after = ("; ".join(f"{field}: {chosen[field][end]}" for field in chosen) for end in ("before", "after"))
    act = _line(verb, member, before[:SHOWN], after[:SHOWN], acting)
    service().nodelist.keep(member, to, why=f"{verb}: {why}", by=by, act=act)


@refuses_viewers
def token(member: str, *, revoke: bool = False, **acting: Unpack[Acting]) -> str:
    """Make and return a new token, with which a member uses the HTTP API. The member's earlier token becomes invalid.

    `revoke`: only make the earlier token invalid, and return an empty text.
    """
    nodelist, made, (why, by) = service().nodelist, "" if revoke else secrets.token_urlsafe(32), _why_and_by(acting)
    _known(member, nodelist.listed().get(member))
    verb, kept = ("revoke-token", "") if revoke else ("make-token", hashlib.sha256(made.encode()).hexdigest())
    act = _line(verb, member, "", "", acting)
    nodelist.keep(member, lambda before: {**before, "token": kept}, why=f"{verb}: {why}", by=by, act=act)
    return made


@verb(MEMBER, tell=_told, name="member-purge", command="members purge", title="Purge", grave=True, host=None)
def purge(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Delete from the catalog all objects of a former member, which is not in the nodelist any more."""
    current, (why, by) = service(), _why_and_by(acting)
    if member in current.nodelist.listed():
        raise ValueError(f"{member} is in the list; first: coordinator members remove {member} --why TEXT")
    check_former(member, current)
    with coordinator.lock(lane_of(member)) as lease:  # no sync runs meanwhile; a late write has a smaller fence
        act = _line("purge", member, f"{current.catalog.summary(member).objects} objects", "no objects", acting)
        current.nodelist.purged(member, fence=lease.fence, why=f"purged: {why}", by=by, act=act)
        count = purge_catalog(current.catalog, member, fence=lease.fence, check=lease.check)
    return ActReport([f"{member}: {count} objects are deleted from the catalog"])


def _known(member: str, listed: Listed | None) -> Listed:
    if listed is None:
        raise UnknownMember(member)
    return listed


def _change(
    verb: str, did: str, member: str, to: Callable[[Listed | None], Listed | None], acting: Acting
) -> str:  # fmt: skip
    """Replace a member in the nodelist by `to(member)`; None: not in the list. Returns as `ReplicatedNodelist.change`:
    WRITTEN, or why the permanent store does not have the change yet. `did`: the verb in the past tense.
    """
    why, by = _why_and_by(acting)
    return service().nodelist.change(member, to, why=f"{did}: {why}", by=by, act=_act(verb, member, acting))


def _act(verb: str, member: str, acting: Acting) -> ActOf:
    """A function that makes the entry of the audit trail from the member before and after a change."""
    return lambda before, after: _line(verb, member, _shown(before), _shown(after), acting)


def _line(verb: str, member: str, before: str, after: str, acting: Acting) -> str:
    """The entry of the audit trail for a command, as JSON. `before`, `after`: the state of the member, in words."""
    about = {"verb": verb, "kind": "member", "name": member, "before": before, "after": after}
    return act_of(**acting, about=about)


def _why_and_by(acting: Acting) -> tuple[str, str]:
    """The reason, and the author's name. Raises InvalidJob where one of them is not valid, such as too long."""
    act_of(**acting)
    return acting.get("why", ""), author_of(acting.get("by")).name


def _cancel(job_id: str, acting: Acting) -> bool:
    why, by = _why_and_by(acting)
    try:
        coordinator.cancel(job_id, why=f"its member was removed: {why}", by=by)
    except UnknownJob:  # the job has ended, or is a lock of plain code, which cannot be cancelled
        return False
    return True


def _shown(listed: Listed | None) -> str:
    """A member's approval, and the date until which it is harvested, in words."""
    if listed is None:
        return "not in the list"
    since = listed.member.last_harvested
    approved = "approved" if listed.approved else "not approved"
    return f"{approved}, harvested until {instants.shown(since)}" if since and since > instants.NEVER else approved


def _done(what: str, far: str, approved: bool = True) -> ActReport:
    """The report of a command, with a sentence that says whether the permanent store has the change already.

    `what`: what was done. `far`: WRITTEN, or why the store lacks the change. `approved`: False adds a remark where the
    store cannot keep that the member is not approved.
    """
    store = service().nodelist.store
    line = f"{what}; {store.name} has it" if far == WRITTEN else f"{what}; {store.name} does not have it yet: {far}"
    unkept = not approved and not store.keeps_approval
    return ActReport(
        [line], f"{store.name} has no place for approval, so it lists this member like all others" * unkept
    )
