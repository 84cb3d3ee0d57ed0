"""Reads the condition of each member, and explains why a member is not synchronized, or when it will be."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import cast

from coordinator import Cause, CoordinatorError, Lane, UnknownEntry, Why
from coordinator.extending import Codes, Json, Verb, cause, lanes_at, next_ticks, verbs_in
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


def _verbs() -> Mapping[str, Verb]:
    return verbs_in(sys.modules["tasks.members.acts"])  # `acts` imports this module, so it cannot be imported above


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
        "has been read by no beat since it came into the nodelist",
        "celery -A tasks beat -S coordinator.scheduler.Scheduler",
    ),
}
CODES = Codes(_SAID, _verbs)
FEW = 3  # number of pids with a slash that must fail before the fault is the server's, rather than the objects'
SHOWN = 500  # most characters of a value in a cause or in the audit trail


class UnknownMember(CoordinatorError, LookupError):
    """Raised for a member that is neither in the nodelist nor in the catalog."""

    def __init__(self, member: str) -> None:
        super().__init__(f"unknown member {member}: coordinator members lists them all")


@dataclass(frozen=True)
class Condition:
    """The condition of one member. None: it does not apply.

    `objects`: objects of the member in the catalog. `gone`: objects that the member has deleted. `failures`: the number
    of failed objects by reason. `slashes`: failed pids with a slash, where none of these succeeds. `obstacle`: why the
    member is not synchronized. `unscheduled`: why its schedule has no ticks. `left_alone_until`: ticks do nothing until
    then, since the member did not answer. `proposes`: changes in the member's description that wait for an operator.
    `undescribed`: why the description could not be read.
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


def condition(member_id: str, listed: Listed | None, current: Holdings) -> Condition:
    [condition] = conditions_of([member_id], {member_id: listed} if listed else {}, current)
    return condition


def conditions_of(names: Sequence[str], listed: Mapping[str, Listed], current: Holdings) -> list[Condition]:
    """The conditions of the members with these ids, in the same order, in a few round trips to Redis and database.

    `listed`: the members of the nodelist by id. `current`: the settings, catalog and nodelist of this process.
    """
    store, keys = coordinator.store, [lane_of(name) for name in names]
    read = current.nodelist.document.read(), current.settings.zone, current.catalog.summaries(names)
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
    """Why a member is not synchronized; None: it is. `listed`: the member in the nodelist; None: it left the list."""
    if listed is None:
        return "it left the list"
    return listed.member.obstacle if listed.approved else _UNAPPROVED


def proposals(member_id: str, copy: Copy, *, refused: bool = False) -> dict[str, Proposal]:
    """The changes, by field, that a member's description proposes. `refused`: include those that an operator refused.

    `copy`: the nodelist.
    """
    known = kept_of(member_id, copy).get("proposals", {})
    return {field: proposal for field, proposal in known.items() if refused or "refused" not in proposal}


def kept_of(member_id: str, copy: Copy) -> Kept:
    return cast(Kept, copy.value(KEPT + member_id) or {})


def conditions(current: Holdings, after: str = "", most: int | None = None) -> list[Condition]:
    """The conditions of the members in the list, then of former members whose objects the catalog keeps.

    `after`: begin after the member with this id; empty: with the first. `most`: the number of members; None: all.
    """
    listed = current.nodelist.listed()
    names = [*listed, *former(current.catalog, listed)]
    first = names.index(after) + 1 if after in names else 0
    return conditions_of(names[first:][:most], listed, current)


def why(member: str) -> Why:
    """Explain why a member is not synchronized, or when it will be. Raises UnknownMember."""
    current = service()
    listed = current.nodelist.listed().get(member)
    if listed is None:
        check_former(member, current)
    own, lane = [*_own_causes(condition(member, listed, current))], lane_of(member)
    if coordinator.lane(lane, 1).state != "empty":
        own += coordinator.why(key=lane).causes
    if not obstacle_of(listed):
        with suppress(UnknownEntry):  # no beat has read the nodelist since the member was added
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


def check_former(member: str, current: Holdings) -> None:
    """Raise UnknownMember if the catalog has no objects of the member, and the permanent store never had the member."""
    if current.nodelist.document.stored_of(member) is None and member not in former(current.catalog, ()):
        raise UnknownMember(member)
