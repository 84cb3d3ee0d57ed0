"""Members: the condition of each, why it is so, and what operators do with them.

An act returns what it did, for people. It raises UnknownMember, or ValueError for what cannot be done.
"""

import hashlib
import secrets
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import NamedTuple

from coordinator import CoordinatorError, UnknownEntry, UnknownJob
from coordinator.author import act_of, refuses_viewers
from coordinator.diagnosis.cause import Cause, Why
from coordinator.diagnosis.codes import Codes, cause
from coordinator.lanes.view import Lane, look
from coordinator.scheduler.entry import next_ticks
from coordinator.store.values import Json
from tasks import instants
from tasks.app import coordinator
from tasks.catalog.catalog import MemberSummary
from tasks.catalog.former import former
from tasks.catalog.former import purge as purge_catalog
from tasks.database import UnusableDatabase
from tasks.documents.copy import Copy
from tasks.member_node import changes
from tasks.member_node.member import Member
from tasks.nodelist.entries import KEPT, Kept, Proposal
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.replicated import ActOf
from tasks.nodelist.stores import Listed
from tasks.nodelist.xml_store import NodelistUnreadable
from tasks.schedules import lane_of, scheduled
from tasks.service import Holdings, service

_UNAPPROVED = "it is not approved"
CODES: Codes = {
    "member.obstacle": ("is not synchronized: {obstacle}", "member-approve id=waits"),
    "member.unscheduled": ("has no ticks: {unscheduled}", ""),
    "member.silent": ("did not answer, and is left alone until {until:at}", "member-refresh id"),
    "member.failed": ("failed in its last run: {error}", ""),
    "member.objects": (
        "has {failed} objects that could not be harvested: {failures:counts}",
        "coordinator catalog {id:sh} --failed",
    ),
    "member.proposes": (
        "proposes another {field}: {before} → {after}",
        "coordinator members accept {id:sh} {field} --why TEXT",
    ),
    "member.unseen": (
        "is seen by no beat since it came into the list",
        "celery -A tasks beat -S coordinator.scheduler.Scheduler",
    ),
}
SHOWN = 500  # characters of the values in a line of the audit trail


class UnknownMember(CoordinatorError, LookupError):
    """Neither the nodelist nor the catalog knows the member."""

    def __init__(self, member: str) -> None:
        super().__init__(f"unknown member {member}: coordinator members lists them all")


class ActReport(NamedTuple):
    """What an act did, in sentences, and what else its author should know."""

    lines: list[str]
    remark: str = ""


@dataclass(frozen=True)
class Condition:
    """The condition of one member. `objects`: those that it has; it deleted those that are `gone`.

    `failures`: failed objects by reason. `obstacle`: why it is not synchronized. `unscheduled`: why it has no ticks.
    `left_alone_until`: ticks do nothing until then, since it did not answer. `proposes`: changes by
    field that its own description asks for, and that wait for an operator.
    """

    member: str
    approved: bool
    state: str
    obstacle: str | None
    last_harvested: datetime | None
    objects: int
    gone: int
    failed: int
    failures: dict[str, int]
    next_tick: datetime | None
    unscheduled: str | None
    left_alone_until: datetime | None
    last_run: datetime | None
    outcome: str | None
    error: str | None
    proposes: dict[str, Proposal]


def condition(member_id: str, listed: Listed | None, here: Holdings) -> Condition:
    [condition] = conditions_of([member_id], {member_id: listed} if listed else {}, here)
    return condition


def conditions_of(names: Sequence[str], listed: Mapping[str, Listed], here: Holdings) -> list[Condition]:
    """The conditions of these members, in a few round trips."""
    store, keys = coordinator.store, [lane_of(name) for name in names]
    read = here.nodelist.document.read(), here.settings.zone, here.catalog.summaries(names)
    return [
        _condition_of(name, listed.get(name), lane, tick, *read)
        for name, lane, tick in zip(names, look(store, keys, 1), next_ticks(store, keys), strict=True)
    ]


def _condition_of(
    member_id: str, listed: Listed | None, lane: Lane, tick: datetime | None, copy: Copy, zone: tzinfo,
    summaries: Mapping[str, MemberSummary],
) -> Condition:  # fmt: skip
    member, summary, obstacle = listed and listed.member, summaries[member_id], _obstacle(listed)
    schedule = member and scheduled(member, zone)
    alone = summary.alone_until
    return Condition(
        member=member_id,
        approved=bool(listed and listed.approved),
        state=(obstacle or "idle") if lane.state == "empty" else lane.state,
        obstacle=obstacle,
        last_harvested=member.last_harvested if member and member.harvested_until > instants.NEVER else None,
        objects=summary.objects,
        gone=summary.gone,
        failed=summary.failed,
        failures=dict(Counter(summary.reasons).most_common()),
        next_tick=None if obstacle else tick,
        unscheduled=schedule if isinstance(schedule, str) and not obstacle else None,
        left_alone_until=alone if alone and alone > instants.now() else None,
        last_run=summary.ran_at,
        outcome=summary.outcome,
        error=summary.error,
        proposes=proposals(member_id, copy) if listed else {},
    )


def _obstacle(listed: Listed | None) -> str | None:
    """Why the member is not synchronized, or None."""
    if listed is None:
        return "it left the list"
    return listed.member.obstacle if listed.approved else _UNAPPROVED


def proposals(member_id: str, copy: Copy, *, refused: bool = False) -> dict[str, Proposal]:
    """The changes by field that the member proposes and the list lacks; with those that an operator refused."""
    known: dict[str, Proposal] = (copy.value(KEPT + member_id) or {}).get("proposals", {})
    return {field: proposal for field, proposal in known.items() if refused or "refused" not in proposal}


def conditions(here: Holdings, after: str = "", most: int | None = None) -> list[Condition]:
    """The members of the list, then those that left and whose objects are kept; a page of `most` behind `after`."""
    listed = here.nodelist.listed()
    names = [*listed, *former(here.catalog, listed)]
    first = names.index(after) + 1 if after in names else 0
    return conditions_of(names[first:][:most], listed, here)


def why(member: str) -> Why:
    """Explain why a member is not synchronized, or when it will be. Raises UnknownMember."""
    here = service()
    listed = here.nodelist.listed().get(member)
    if listed is None:
        _check_former(member, here)
    own, lane = [*_own_causes(condition(member, listed, here))], lane_of(member)
    if coordinator.lane(lane, 1).state != "empty":
        own += coordinator.why(key=lane).causes
    if not _obstacle(listed):
        with suppress(UnknownEntry):  # no beat has read the list since the member came
            own += coordinator.why(entry=lane).causes
    own = own or [cause("member.unseen", f"member {member}", (), CODES)]
    return Why(f"member {member}", own[0].text, tuple(own), instants.now())


def _own_causes(shown: Condition) -> Iterator[Cause]:
    member, until = shown.member, shown.left_alone_until
    about: dict[str, dict[str, Json]] = {
        "member.obstacle": {"obstacle": shown.obstacle, "waits": member if shown.obstacle == _UNAPPROVED else None},
        "member.unscheduled": {"unscheduled": shown.unscheduled},
        "member.silent": {"until": until.isoformat() if until else None},
        "member.failed": {"error": shown.error},
        "member.objects": {"failed": shown.failed, "failures": dict(shown.failures)},
    }
    for code, facts in about.items():
        if next(iter(facts.values())):
            yield cause(code, f"member {member}", (), CODES, id=member, **facts)
    for field, proposal in shown.proposes.items():
        ends: dict[str, Json] = {end: str(proposal[end])[:SHOWN] for end in ("before", "after")}
        yield cause("member.proposes", f"member {member}", (), CODES, id=member, field=field, **ends)


@refuses_viewers
def refresh(
    member: str, pid: str | None = None, *, complete: bool = False, job_id: str = "", why: str, by: str = "",
    ticket: str = "",
) -> str:  # fmt: skip
    """Ask for a sync of a member now; give the id of its job. Asked again with that id, it asks for one sync.

    Raises UnknownMember, and ValueError for a member that cannot be synchronized. Where the list cannot be read, the
    node decides that takes the request in.
    """
    from tasks import requests  # the tasks of a sync load httpx

    with suppress(NodelistUnreadable, UnusableDatabase):
        listed = service().nodelist.listed().get(member)
        if listed is None:
            raise UnknownMember(member)
        if obstacle := _obstacle(listed):
            raise ValueError(f"{member} cannot be synchronized: {obstacle}")
    job_id = job_id or str(uuid.uuid4())
    what = f"object {pid}" if pid else "everything" if complete else "changes"
    coordinator.acted("refresh", "member", member, id=job_id, after=what, why=why, by=by or None, ticket=ticket)
    return requests.refresh(member, pid, why, complete=complete, job_id=job_id)


@refuses_viewers
def add(described: Member, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Add a member, as it describes itself, to the list; approve it later. Raises ValueError where it is there."""
    identifier = described.identifier

    def to(before: Listed | None) -> Listed:
        if before is not None:
            raise ValueError(f"not added: {identifier} is already in the list, at {before.member.base_url}")
        return Listed(member=Dates().put_on(described), approved=False)

    act = _act("add", identifier, why, by, ticket)
    far = service().nodelist.change(identifier, to, why=f"added: {why}", by=by, act=act)
    done = _done(f"{identifier} is in the list", far, approved=False)
    done.lines.append(f"it is not synchronized yet; to approve it: coordinator members approve {identifier} --why TEXT")
    return done


@refuses_viewers
def approve(member: str, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Let the service synchronize a member."""
    act = _act("approve", member, why, by, ticket)
    listed, far = _set_approved(member, True, f"approved: {why}", by, act)
    obstacle = listed.member.obstacle
    still = f"{member} still cannot be synchronized: {obstacle}" if obstacle else ""
    return _done(f"{member} is approved", far)._replace(remark=still)


@refuses_viewers
def suspend(member: str, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Stop synchronizing a member; it stays in the list."""
    _, far = _set_approved(member, False, f"suspended: {why}", by, _act("suspend", member, why, by, ticket))
    return _done(f"{member} is suspended", far, approved=False)


def _set_approved(member: str, approved: bool, why: str, by: str, act: ActOf) -> tuple[Listed, str]:
    def to(before: Listed | None) -> Listed:
        if before is None:
            raise UnknownMember(member)
        changed.append(before.model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    far = service().nodelist.change(member, to, why=why, by=by, act=act)
    return changed[-1], far


@refuses_viewers
def reset(member: str, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Harvest a member from its beginning again, at its next synchronization."""
    try:
        far = service().nodelist.reset(member, f"reset: {why}", by, _act("reset", member, why, by, ticket))
    except KeyError:
        raise UnknownMember(member) from None
    return _done(f"{member} will be harvested from its beginning", far)


@refuses_viewers
def remove(member: str, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Take a member out of the list, and cancel its syncs; the catalog keeps its objects."""
    here = service()

    def to(before: Listed | None) -> None:
        if before is None:
            _check_former(member, here)

    act = _act("remove", member, why, by, ticket)
    far = here.nodelist.change(member, to, why=f"removed: {why}", by=by, act=act)
    cancelled = sum(_cancel(job_id, why, by) for job_id in coordinator.lane(lane_of(member)).jobs)
    done = _done(f"{member} is not in the list", far)
    if cancelled:
        done.lines.append(f"{cancelled} of its syncs {'is' if cancelled == 1 else 'are'} cancelled")
    if objects := here.catalog.summary(member).objects:
        done.lines.append(
            f"the catalog keeps its {objects} objects; to delete them: coordinator members purge {member}"
        )
    return done


@refuses_viewers
def accept(member: str, fields: Sequence[str] = (), *, why: str, by: str, ticket: str = "") -> ActReport:
    """Take in what a member proposes: these fields, or all that wait."""
    chosen = _chosen(member, fields)

    def to(before: Listed | None) -> Listed:
        if before is None:
            raise UnknownMember(member)
        described = before.member
        for field, proposal in chosen.items():
            if changes.value(described, field) != proposal["before"]:
                raise ValueError(f"the list's {field} was changed meanwhile: coordinator members refresh {member}")
            described = changes.put(described, field, proposal["after"])
        return before.model_copy(update={"member": described})

    far = service().nodelist.change(member, to, why=f"accepted: {why}", by=by)
    _settle("accept", member, chosen, why, by, ticket)
    return _done(f"{member} has its own {', '.join(chosen)}", far)


@refuses_viewers
def refuse(member: str, fields: Sequence[str] = (), *, why: str, by: str, ticket: str = "") -> ActReport:
    """Leave fields as they are in the list, or all that wait, until the member proposes something else."""
    chosen = _chosen(member, fields)
    _settle("refuse", member, chosen, why, by, ticket)
    return ActReport([f"{member} keeps the list's {', '.join(chosen)}"])


def _chosen(member: str, fields: Sequence[str]) -> dict[str, Proposal]:
    here = service()
    if member not in here.nodelist.listed():
        raise UnknownMember(member)
    known = proposals(member, here.nodelist.document.read(), refused=bool(fields))
    if not known or not known.keys() >= {*fields}:
        raise ValueError(f"{member} proposes {', '.join(known) or 'nothing'}")
    return {field: known[field] for field in fields or known}


def _settle(verb: str, member: str, chosen: dict[str, Proposal], why: str, by: str, ticket: str) -> None:
    """Drop or refuse these proposals. What the member has proposed since then goes on to wait."""

    def to(kept: Kept) -> Kept:
        left = dict(kept.get("proposals", {}))
        for field, proposal in chosen.items():
            if field in left and left[field]["after"] == proposal["after"]:
                del left[field]
                if verb == "refuse":
                    left[field] = {"before": proposal["before"], "after": proposal["after"], "refused": f"{by}: {why}"}
        return {**kept, "proposals": left}

    before, after = ("; ".join(f"{field}: {chosen[field][end]}" for field in chosen) for end in ("before", "after"))
    about = {"verb": verb, "kind": "member", "name": member, "before": before[:SHOWN], "after": after[:SHOWN]}
    service().nodelist.keep(member, to, why=f"{verb}: {why}", by=by, act=act_of(why, by, ticket, about=about))


@refuses_viewers
def token(member: str, *, revoke: bool = False, why: str, by: str, ticket: str = "") -> str:
    """Make a token with which a member asks over HTTP, and end its earlier one; or only that. Returns the token."""
    here, made = service(), "" if revoke else secrets.token_urlsafe(32)
    if member not in here.nodelist.listed():
        raise UnknownMember(member)
    verb, kept = ("revoke-token", "") if revoke else ("make-token", hashlib.sha256(made.encode()).hexdigest())
    about = {"verb": verb, "kind": "member", "name": member, "before": "", "after": ""}
    act = act_of(why, by, ticket, about=about)
    here.nodelist.keep(member, lambda before: {**before, "token": kept}, why=f"{verb}: {why}", by=by, act=act)
    return made


def _check_former(member: str, here: Holdings) -> None:
    """Raises UnknownMember where neither the catalog nor the notes about the permanent store know the member."""
    if here.nodelist.document.stored_of(member) is None and member not in former(here.catalog, ()):
        raise UnknownMember(member)


def _cancel(job_id: str, why: str, by: str) -> bool:
    try:
        coordinator.cancel(job_id, why=f"its member was removed: {why}", by=by)
    except UnknownJob:  # it is over, or a lock in plain code
        return False
    return True


@refuses_viewers
def purge(member: str, *, why: str, by: str, ticket: str = "") -> ActReport:
    """Delete from the catalog all that it has of a member that left the list."""
    here = service()
    if member in here.nodelist.listed():
        raise ValueError(f"{member} is in the list; first: coordinator members remove {member} --why TEXT")
    _check_former(member, here)
    with coordinator.lock(lane_of(member)) as lease:  # so no sync writes meanwhile, and none that is late afterwards
        about = {"verb": "purge", "kind": "member", "name": member, "after": "no objects"}
        about["before"] = f"{here.catalog.summary(member).objects} objects"
        act = act_of(why, by, ticket, about=about)
        here.nodelist.purged(member, fence=lease.fence, why=f"purged: {why}", by=by, act=act)
        count = purge_catalog(here.catalog, member, fence=lease.fence, check=lease.check)
    return ActReport([f"{member}: {count} objects are deleted from the catalog"])


def _act(verb: str, member: str, why: str, by: str, ticket: str) -> ActOf:
    """What the commit that does the act writes into the audit trail; the history of the list has it, too."""

    def act(before: Listed | None, after: Listed | None) -> str:
        about = {"verb": verb, "kind": "member", "name": member, "before": _condition(before)}
        return act_of(why, by, ticket, about={**about, "after": _condition(after)})

    return act


def _condition(listed: Listed | None) -> str:
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
