"""What operators do with members. An act returns what it did, for people.

It raises UnknownMember, or ValueError for what cannot be done.
"""

import hashlib
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Unpack

from coordinator import UnknownJob
from coordinator.extending import Acting, act_of, author_of, refuses_viewers
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
from tasks.schedules import lane_of
from tasks.service import service


class ActReport(NamedTuple):
    """What an act did, in sentences, and what else its author should know."""

    lines: list[str]
    remark: str = ""


@refuses_viewers
def refresh(
    member: str, pid: str | None = None, *, complete: bool = False, job_id: str = "", **acting: Unpack[Acting]
) -> str:
    """Ask for a sync of a member now; give the id of its job. Asked again with that id, it asks for one sync.

    Raises UnknownMember, and ValueError for a member that cannot be synchronized. Where the list cannot be read, the
    node decides that takes the request in.
    """
    from tasks import requests  # the tasks of a sync load httpx

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


@refuses_viewers
def add(described: Member, **acting: Unpack[Acting]) -> ActReport:
    """Add a member, as it describes itself, to the list; approve it later. Raises ValueError where it is there."""
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


@refuses_viewers
def approve(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Let the service synchronize a member."""
    listed, far = _set_approved("approve", "approved", member, True, acting)
    obstacle = listed.member.obstacle
    still = f"{member} still cannot be synchronized: {obstacle}" if obstacle else ""
    return _done(f"{member} is approved", far)._replace(remark=still)


@refuses_viewers
def suspend(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Stop synchronizing a member; it stays in the list."""
    _, far = _set_approved("suspend", "suspended", member, False, acting)
    return _done(f"{member} is suspended", far, approved=False)


def _set_approved(verb: str, did: str, member: str, approved: bool, acting: Acting) -> tuple[Listed, str]:
    def to(before: Listed | None) -> Listed:
        changed.append(_known(member, before).model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    far = _change(verb, did, member, to, acting)
    return changed[-1], far


@refuses_viewers
def reset(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Fetch all objects of a member anew, whatever their dates, at its next synchronization."""
    why, by = _said(acting)
    try:
        far = service().nodelist.reset(member, f"reset: {why}", by, _act("reset", member, acting))
    except KeyError:
        raise UnknownMember(member) from None
    return _done(f"{member} will be harvested from its beginning", far)


@refuses_viewers
def remove(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Take a member out of the list, and cancel its syncs; the catalog keeps its objects."""
    here = service()

    def to(before: Listed | None) -> None:
        if before is None:
            check_former(member, here)

    far = _change("remove", "removed", member, to, acting)
    cancelled = sum(_cancel(job_id, acting) for job_id in coordinator.lane(lane_of(member)).jobs)
    done = _done(f"{member} is not in the list", far)
    if cancelled:
        done.lines.append(f"{cancelled} of its syncs {'is' if cancelled == 1 else 'are'} cancelled")
    if objects := here.catalog.summary(member).objects:
        done.lines.append(
            f"the catalog keeps its {objects} objects; to delete them: coordinator members purge {member}"
        )
    return done


@refuses_viewers
def accept(member: str, fields: Sequence[str] = (), **acting: Unpack[Acting]) -> ActReport:
    """Take in what a member proposes: these fields, or all that wait."""
    chosen, (why, by) = _chosen(member, fields), _said(acting)

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


@refuses_viewers
def refuse(member: str, fields: Sequence[str] = (), **acting: Unpack[Acting]) -> ActReport:
    """Leave fields as they are in the list, or all that wait, until the member proposes something else."""
    chosen = _chosen(member, fields)
    _settle("refuse", member, chosen, acting)
    return ActReport([f"{member} keeps the list's {', '.join(chosen)}"])


def _chosen(member: str, fields: Sequence[str]) -> dict[str, Proposal]:
    here = service()
    _known(member, here.nodelist.listed().get(member))
    known = proposals(member, here.nodelist.document.read(), refused=bool(fields))
    if not known or not known.keys() >= {*fields}:
        raise ValueError(f"{member} proposes {', '.join(known) or 'nothing'}")
    return {field: known[field] for field in fields or known}


def _settle(verb: str, member: str, chosen: dict[str, Proposal], acting: Acting) -> None:
    """Drop or refuse these proposals. What the member has proposed since then goes on to wait."""
    why, by = _said(acting)

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
    """Make a token with which a member asks over HTTP, and end its earlier one; or only that. Returns the token."""
    here, made, (why, by) = service(), "" if revoke else secrets.token_urlsafe(32), _said(acting)
    _known(member, here.nodelist.listed().get(member))
    verb, kept = ("revoke-token", "") if revoke else ("make-token", hashlib.sha256(made.encode()).hexdigest())
    act = _line(verb, member, "", "", acting)
    here.nodelist.keep(member, lambda before: {**before, "token": kept}, why=f"{verb}: {why}", by=by, act=act)
    return made


@refuses_viewers
def purge(member: str, **acting: Unpack[Acting]) -> ActReport:
    """Delete from the catalog all that it has of a member that left the list."""
    here, (why, by) = service(), _said(acting)
    if member in here.nodelist.listed():
        raise ValueError(f"{member} is in the list; first: coordinator members remove {member} --why TEXT")
    check_former(member, here)
    with coordinator.lock(lane_of(member)) as lease:  # so no sync writes meanwhile, and none that is late afterwards
        act = _line("purge", member, f"{here.catalog.summary(member).objects} objects", "no objects", acting)
        here.nodelist.purged(member, fence=lease.fence, why=f"purged: {why}", by=by, act=act)
        count = purge_catalog(here.catalog, member, fence=lease.fence, check=lease.check)
    return ActReport([f"{member}: {count} objects are deleted from the catalog"])


def _known(member: str, listed: Listed | None) -> Listed:
    if listed is None:
        raise UnknownMember(member)
    return listed


def _change(
    verb: str, did: str, member: str, to: Callable[[Listed | None], Listed | None], acting: Acting
) -> str:  # fmt: skip
    """Change a member in the list; returns whether the permanent store has it (`ReplicatedNodelist.change`)."""
    why, by = _said(acting)
    return service().nodelist.change(member, to, why=f"{did}: {why}", by=by, act=_act(verb, member, acting))


def _act(verb: str, member: str, acting: Acting) -> ActOf:
    """What the commit that does the act writes into the audit trail; the history of the list has it, too."""
    return lambda before, after: _line(verb, member, _shown(before), _shown(after), acting)


def _line(verb: str, member: str, before: str, after: str, acting: Acting) -> str:
    """The line of the audit trail."""
    about = {"verb": verb, "kind": "member", "name": member, "before": before, "after": after}
    return act_of(**acting, about=about)


def _said(acting: Acting) -> tuple[str, str]:
    """The reason, and the name of the author. Raises InvalidJob for what an act does not take."""
    act_of(**acting)
    return acting.get("why", ""), author_of(acting.get("by")).name


def _cancel(job_id: str, acting: Acting) -> bool:
    why, by = _said(acting)
    try:
        coordinator.cancel(job_id, why=f"its member was removed: {why}", by=by)
    except UnknownJob:  # it is over, or a lock in plain code
        return False
    return True


def _shown(listed: Listed | None) -> str:
    """The approval of a member, and from when on it is harvested."""
    if listed is None:
        return "not in the list"
    since = listed.member.last_harvested
    approved = "approved" if listed.approved else "not approved"
    return f"{approved}, harvested until {instants.shown(since)}" if since and since > instants.NEVER else approved


def _done(what: str, far: str, approved: bool = True) -> ActReport:
    """What was done, and whether the permanent store has it."""
    store = service().nodelist.store
    line = f"{what}; {store.name} has it" if far == WRITTEN else f"{what}; {store.name} does not have it yet: {far}"
    unkept = not approved and not store.keeps_approval
    return ActReport(
        [line], f"{store.name} has no place for approval, so it lists this member like all others" * unkept
    )
