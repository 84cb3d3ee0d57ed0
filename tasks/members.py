"""Members: the condition of each, why it is so, and what operators do with them.

An act returns what it did, for people. It raises UnknownMember, or ValueError for what cannot be done.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from coordinator import CoordinatorError, UnknownJob
from coordinator.scheduler.entries import next_tick
from tasks import instants
from tasks.app import coordinator
from tasks.catalog.former import former
from tasks.catalog.former import purge as purge_catalog
from tasks.harvest.silence import silence
from tasks.member_node.member import Member
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.stores import Listed
from tasks.schedules import lane_of, scheduled
from tasks.service import Holdings, service


class UnknownMember(CoordinatorError, LookupError):
    """Neither the nodelist nor the catalog knows the member."""

    def __init__(self, member: str) -> None:
        super().__init__(f"unknown member {member}: coordinator members lists them all")


class Done(NamedTuple):
    """What an act did, in sentences, and what else its author should know."""

    lines: list[str]
    remark: str = ""


@dataclass(frozen=True)
class Condition:
    """The condition of one member. `objects`: those that it has; it deleted those that are `gone`.

    `failures`: failed objects by reason. `unscheduled`: why it has no ticks. `left_alone_until`: ticks do nothing until
    then, since it did not answer.
    """

    member: str
    approved: bool
    state: str
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


def condition(member_id: str, listed: Listed | None, here: Holdings) -> Condition:
    catalog, member = here.catalog, listed and listed.member
    summary = catalog.summary(member_id)
    silent = silence(catalog, member_id)
    lane = coordinator.lane(lane_of(member_id), 1)
    reasons = Counter(failure.reason for failure in catalog.failed(member_id, limit=1000))
    obstacle = _obstacle(listed)
    schedule = member and scheduled(member, here.settings.zone)
    return Condition(
        member=member_id,
        approved=bool(listed and listed.approved),
        state=(obstacle or "idle") if lane.state == "empty" else lane.state,
        last_harvested=member.last_harvested if member and member.harvested_until > instants.NEVER else None,
        objects=summary.objects,
        gone=summary.gone,
        failed=summary.failed,
        failures=dict(reasons.most_common()),
        next_tick=None if obstacle else next_tick(coordinator.store, lane_of(member_id)),
        unscheduled=schedule if isinstance(schedule, str) and not obstacle else None,
        left_alone_until=silent.until if silent and silent.until > instants.now() else None,
        last_run=summary.ran_at,
        outcome=summary.outcome,
        error=summary.error,
    )


def _obstacle(listed: Listed | None) -> str | None:
    """Why the member is not synchronized, or None."""
    if listed is None:
        return "it left the list"
    return listed.member.obstacle if listed.approved else "it is not approved"


def conditions(here: Holdings, after: str = "", most: int | None = None) -> list[Condition]:
    """The members of the list, then those that left and whose objects are kept; a page of `most` behind `after`."""
    listed = here.nodelist.listed()
    names = [*listed, *former(here.catalog, listed)]
    first = names.index(after) + 1 if after in names else 0
    return [condition(one, listed.get(one), here) for one in names[first:][:most]]


def add(described: Member, *, why: str, by: str) -> Done:
    """Add a member, as it describes itself, to the list; approve it later. Raises ValueError where it is there."""
    identifier = described.identifier

    def to(before: Listed | None) -> Listed:
        if before is not None:
            raise ValueError(f"not added: {identifier} is already in the list, at {before.member.base_url}")
        return Listed(member=Dates().put_on(described), approved=False)

    far = service().nodelist.change(identifier, to, why=f"added: {why}", by=by)
    done = _done(f"{identifier} is in the list", far, approved=False)
    done.lines.append(f"it is not synchronized yet; to approve it: coordinator members approve {identifier} --why TEXT")
    return done


def approve(member: str, *, why: str, by: str) -> Done:
    """Let the service synchronize a member."""
    listed, far = _set_approved(member, True, f"approved: {why}", by)
    obstacle = listed.member.obstacle
    still = f"{member} still cannot be synchronized: {obstacle}" if obstacle else ""
    return _done(f"{member} is approved", far)._replace(remark=still)


def suspend(member: str, *, why: str, by: str) -> Done:
    """Stop synchronizing a member; it stays in the list."""
    _, far = _set_approved(member, False, f"suspended: {why}", by)
    return _done(f"{member} is suspended", far, approved=False)


def _set_approved(member: str, approved: bool, why: str, by: str) -> tuple[Listed, str]:
    def to(before: Listed | None) -> Listed:
        if before is None:
            raise UnknownMember(member)
        changed.append(before.model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    far = service().nodelist.change(member, to, why=why, by=by)
    return changed[-1], far


def reset(member: str, *, why: str, by: str) -> Done:
    """Harvest a member from its beginning again, at its next synchronization."""
    try:
        far = service().nodelist.reset(member, f"reset: {why}", by)
    except KeyError:
        raise UnknownMember(member) from None
    return _done(f"{member} will be harvested from its beginning", far)


def remove(member: str, *, why: str, by: str) -> Done:
    """Take a member out of the list, and cancel its syncs; the catalog keeps its objects."""
    here = service()

    def to(before: Listed | None) -> None:
        if before is None:
            _check_former(member, here)

    far = here.nodelist.change(member, to, why=f"removed: {why}", by=by)
    cancelled = sum(_cancel(job_id, why, by) for job_id in coordinator.lane(lane_of(member)).jobs)
    done = _done(f"{member} is not in the list", far)
    if cancelled:
        done.lines.append(f"{cancelled} of its syncs {'is' if cancelled == 1 else 'are'} cancelled")
    if objects := here.catalog.summary(member).objects:
        done.lines.append(
            f"the catalog keeps its {objects} objects; to delete them: coordinator members purge {member}"
        )
    return done


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


def purge(member: str, *, why: str, by: str) -> Done:
    """Delete from the catalog all that it has of a member that left the list."""
    here = service()
    if member in here.nodelist.listed():
        raise ValueError(f"{member} is in the list; first: coordinator members remove {member} --why TEXT")
    _check_former(member, here)
    with coordinator.lock(lane_of(member)) as lease:  # so no sync writes meanwhile, and none that is late afterwards
        here.nodelist.purged(member, fence=lease.fence, why=f"purged: {why}", by=by)
        count = purge_catalog(here.catalog, member, fence=lease.fence, check=lease.check)
    return Done([f"{member}: {count} objects are deleted from the catalog"])


def _done(what: str, far: str, approved: bool = True) -> Done:
    """What was done, and whether the permanent store has it."""
    store = service().nodelist.store
    line = f"{what}; {store.name} has it" if far == WRITTEN else f"{what}; {store.name} does not have it yet: {far}"
    unkept = not approved and not store.keeps_approval
    return Done([line], f"{store.name} has no place for approval, so it lists this member like all others" * unkept)
