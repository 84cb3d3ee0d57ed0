"""The condition of each member, and why it is so."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import cast

from coordinator import Cause, CoordinatorError, Lane, UnknownEntry, Why
from coordinator.extending import Codes, Json, cause, lanes_at, next_ticks
from tasks import instants
from tasks.app import coordinator
from tasks.catalog.catalog import MemberSummary
from tasks.catalog.former import former
from tasks.documents.copy import Copy
from tasks.member_node.member import scheduled
from tasks.nodelist.entries import KEPT, Kept, Proposal
from tasks.nodelist.stores import Listed
from tasks.schedules import lane_of
from tasks.service import Holdings, service

_UNAPPROVED = "it is not approved"
_COMMANDS = {
    "member-approve": ("members approve", "{id:sh}"),
    "member-refresh": ("refresh", "{id:sh}"),
}
_SAID = {
    "member.obstacle": ("is not synchronized: {obstacle}", "member-approve id=waits"),
    "member.unscheduled": ("has no ticks: {unscheduled}", ""),
    "member.silent": ("did not answer, and is left alone until {until:at}", "member-refresh id"),
    "member.failed": ("failed in its last run: {error}", ""),
    "member.listing": ("was harvested, and its listing has faults: {error}", ""),
    "member.objects": (
        "has objects that could not be harvested: {failures:counts}",
        "coordinator catalog {id:sh} --failed",
    ),
    "member.slashes": (
        "shows none of its {count} pids with a slash (404): does its server refuse %2F, as Apache does without "
        "`AllowEncodedSlashes NoDecode`, or does a proxy before it decode that?",
        "coordinator catalog {id:sh} --failed",
    ),
    "member.proposes": (
        "proposes another {field}: {before} → {after}",
        "coordinator members accept {id:sh} {field} --why TEXT",
    ),
    "member.undescribed": (
        "has a description of its own that could not be read: {error}",
        "coordinator members refresh {id:sh}",
    ),
    "member.unseen": (
        "is seen by no beat since it came into the list",
        "celery -A tasks beat -S coordinator.scheduler.Scheduler",
    ),
}
CODES = Codes(_SAID, _COMMANDS)
FEW = 3  # pids, from which on they show a habit of a server
SHOWN = 500  # characters of a value in a cause or in the audit trail


class UnknownMember(CoordinatorError, LookupError):
    """Neither the nodelist nor the catalog knows the member."""

    def __init__(self, member: str) -> None:
        super().__init__(f"unknown member {member}: coordinator members lists them all")


@dataclass(frozen=True)
class Condition:
    """The condition of one member. `objects`: those that it has; it deleted those that are `gone`.

    `failures`: failed objects by reason. `slashes`: pids with a slash, where the member finds none of these.
    `obstacle`: why it is not synchronized. `unscheduled`: why it has no ticks. `left_alone_until`: ticks do nothing
    until then, since it did not answer. `proposes`: changes by field that its own description asks for, and that wait
    for an operator. `undescribed`: why that could not be read.
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
    slashes: int
    next_tick: datetime | None
    unscheduled: str | None
    left_alone_until: datetime | None
    last_run: datetime | None
    outcome: str | None
    error: str | None
    proposes: dict[str, Proposal]
    undescribed: str | None


def condition(member_id: str, listed: Listed | None, here: Holdings) -> Condition:
    [condition] = conditions_of([member_id], {member_id: listed} if listed else {}, here)
    return condition


def conditions_of(names: Sequence[str], listed: Mapping[str, Listed], here: Holdings) -> list[Condition]:
    """The conditions of these members, in a few round trips."""
    store, keys = coordinator.store, [lane_of(name) for name in names]
    read = here.nodelist.document.read(), here.settings.zone, here.catalog.summaries(names)
    return [
        _condition_of(name, listed.get(name), lane, tick, *read)
        for name, lane, tick in zip(names, lanes_at(store, keys, 1), next_ticks(store, keys), strict=True)
    ]


def _condition_of(
    member_id: str, listed: Listed | None, lane: Lane, tick: datetime | None, copy: Copy, zone: tzinfo,
    summaries: Mapping[str, MemberSummary],
) -> Condition:  # fmt: skip
    member, summary, obstacle = listed and listed.member, summaries[member_id], obstacle_of(listed)
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
        slashes=summary.slashes if summary.slashes >= FEW else 0,
        next_tick=None if obstacle else tick,
        unscheduled=schedule if isinstance(schedule, str) and not obstacle else None,
        left_alone_until=alone if alone and alone > instants.now() else None,
        last_run=summary.ran_at,
        outcome=summary.outcome,
        error=summary.error,
        proposes=proposals(member_id, copy) if listed else {},
        undescribed=kept_of(member_id, copy).get("undescribed"),
    )


def obstacle_of(listed: Listed | None) -> str | None:
    """Why the member is not synchronized, or None."""
    if listed is None:
        return "it left the list"
    return listed.member.obstacle if listed.approved else _UNAPPROVED


def proposals(member_id: str, copy: Copy, *, refused: bool = False) -> dict[str, Proposal]:
    """The changes by field that the member proposes and the list lacks; with those that an operator refused."""
    known = kept_of(member_id, copy).get("proposals", {})
    return {field: proposal for field, proposal in known.items() if refused or "refused" not in proposal}


def kept_of(member_id: str, copy: Copy) -> Kept:
    return cast(Kept, copy.value(KEPT + member_id) or {})


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
        check_former(member, here)
    own, lane = [*_own_causes(condition(member, listed, here))], lane_of(member)
    if coordinator.lane(lane, 1).state != "empty":
        own += coordinator.why(key=lane).causes
    if not obstacle_of(listed):
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
        "member.failed": {"error": shown.error if shown.outcome == "failed" else None},
        "member.listing": {"error": shown.error if shown.outcome == "succeeded" else None},
        "member.undescribed": {"error": shown.undescribed},
        "member.slashes": {"count": shown.slashes},
        "member.objects": {"failed": shown.failed, "failures": dict(shown.failures)},
    }
    for code, facts in about.items():
        if next(iter(facts.values())):
            yield cause(code, f"member {member}", (), CODES, id=member, **facts)
    for field, proposal in shown.proposes.items():
        ends: dict[str, Json] = {end: str(proposal[end])[:SHOWN] for end in ("before", "after")}
        yield cause("member.proposes", f"member {member}", (), CODES, id=member, field=field, **ends)


def check_former(member: str, here: Holdings) -> None:
    """Raises UnknownMember where neither the catalog nor the notes about the permanent store know the member."""
    if here.nodelist.document.stored_of(member) is None and member not in former(here.catalog, ()):
        raise UnknownMember(member)
