"""`coordinator members …`: how each member is, and an operator's hand on the list of them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import click

from coordinator.entries import next_tick
from coordinator.session import json_option
from coordinator.tables import as_json, moment, table
from tasks import checks, instants
from tasks.app import coordinator
from tasks.member import Member
from tasks.members import lane_of, scheduled
from tasks.oneline import one_line, unknown
from tasks.replicated import ReplicatedNodelist
from tasks.service import Service, service
from tasks.sources import DATES, WRITTEN, Listed


@dataclass(frozen=True)
class Condition:
    """Of one member; `failures`: how many objects failed for which reason; `unscheduled`: why it has no ticks."""

    member: str
    approved: bool
    state: str
    last_harvested: datetime | None
    objects: int
    failed: int
    failures: dict[str, int]
    next_tick: datetime | None
    unscheduled: str | None
    last_run: datetime | None
    outcome: str | None
    error: str | None


def _condition(listed: Listed, here: Service) -> Condition:
    member, catalog = listed.member, here.catalog
    summary = catalog.summary(member.identifier)
    lane = coordinator.lane(lane_of(member.identifier), 1)
    reasons = Counter(failure.reason for failure in catalog.failed(member.identifier, limit=1000))
    obstacle = member.obstacle if listed.approved else "it is not approved"
    schedule = scheduled(member, here.settings.zone)
    return Condition(
        member=member.identifier,
        approved=listed.approved,
        state=(obstacle or "idle") if lane.state == "empty" else lane.state,
        last_harvested=None if member.harvested_until <= instants.NEVER else member.last_harvested,
        objects=summary.objects,
        failed=summary.failed,
        failures=dict(reasons.most_common()),
        next_tick=None if obstacle else next_tick(coordinator.store, lane_of(member.identifier)),
        unscheduled=schedule if isinstance(schedule, str) and not obstacle else None,
        last_run=summary.ran_at,
        outcome=summary.outcome,
        error=summary.error,
    )


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
@one_line()
def members(ctx: click.Context, as_json_: bool) -> None:
    """Each member: what it is doing, until when it was harvested, objects, failures, next tick."""
    if ctx.invoked_subcommand:
        return
    here = service()
    found = [_condition(listed, here) for listed in here.nodelist.listed().values()]
    if as_json_:
        click.echo(as_json([asdict(one) for one in found]))
        return
    heads = ("member", "state", "last harvested", "objects", "failed", "next tick", "last run", "what is wrong")
    fields = ("member", "state", "last_harvested", "objects", "failed", "next_tick")
    rows = ([*(getattr(one, name) for name in fields), _last_run(one), _wrong(one)] for one in found)
    click.echo(table(heads, rows))


def _last_run(one: Condition) -> str | None:
    return f"{moment(one.last_run)} {one.outcome}" if one.last_run else None


def _wrong(one: Condition) -> str:
    found = [f"not scheduled: {one.unscheduled}"] if one.unscheduled else []
    found += [one.error] if one.error else [f"{count} × {reason}" for reason, count in list(one.failures.items())[:3]]
    return "; ".join(found)


@members.command()
@click.argument("url")
@one_line()
def check(url: str) -> None:
    """Look whether a member at the base URL can be synchronized: its description, listing, metadata and schedule."""
    if _checked(url)[1]:
        raise click.exceptions.Exit(1)


def _checked(url: str) -> tuple[Member | None, list[checks.Check]]:
    """The member, where it describes itself, and what it lacks; each check is told."""
    member, lacking = None, []
    for found in checks.look(url, service().settings):
        member = member or found.member
        lacking += [] if found.fine else [found]
        click.echo(f"{'ok' if found.fine else 'NO':3} {found.what}: {found.says}")
    return member, lacking


def acts(*, argument: str = "ID") -> Callable[[Callable[..., None]], click.Command]:
    """A command by which somebody changes the list; `why` is kept in its history."""

    def add(function: Callable[..., None]) -> click.Command:
        command: Any = click.option("--why", default="", help="Kept, with who.")(one_line()(function))
        return members.command()(click.argument("member", metavar=argument)(command))

    return add


@acts(argument="URL")
def add(member: str, why: str) -> None:
    """Take the member at a base URL into the list, as it describes itself; not approved yet."""
    found, lacking = _checked(member)
    if found is None or lacking:
        raise click.ClickException(f"not added: {lacking[0].what}: {lacking[0].says}")
    new = Listed(member=found.model_copy(update=dict.fromkeys(DATES)), approved=False)

    def to(before: Listed | None) -> Listed:
        if before is not None:
            raise ValueError(f"not added: {found.identifier} is in the list, at {before.member.base_url}")
        return new

    nodelist = service().nodelist
    far = nodelist.change(found.identifier, to, why=_reason("added", why))
    then = f"not approved yet: coordinator members approve {found.identifier}"
    _tell(nodelist, f"{found.identifier} is in the list, {then}", far, approved=False)


@acts()
def approve(member: str, why: str) -> None:
    """Have a member synchronized."""
    obstacle = _set_approved(member, True, _reason("approved", why)).member.obstacle
    if obstacle:
        click.echo(f"{member} is not synchronized all the same: {obstacle}", err=True)


@acts()
def suspend(member: str, why: str) -> None:
    """Have a member synchronized no more; it stays in the list."""
    _set_approved(member, False, _reason("suspended", why))


def _set_approved(member: str, approved: bool, why: str) -> Listed:
    def to(before: Listed | None) -> Listed:
        if before is None:
            raise unknown(member)
        changed.append(before.model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    nodelist = service().nodelist
    far = nodelist.change(member, to, why=why)
    _tell(nodelist, f"{member} is {'approved' if approved else 'suspended'}", far, approved=approved)
    return changed[-1]


@acts()
def reset(member: str, why: str) -> None:
    """Forget until when a member was harvested: its next synchronization begins at its beginning."""
    nodelist = service().nodelist
    try:
        far = nodelist.reset(member, _reason("reset", why))
    except KeyError:
        raise unknown(member) from None
    _tell(nodelist, f"{member} will be harvested from its beginning", far)


def _reason(act: str, why: str) -> str:
    return f"{act}: {why}" if why else act


def _tell(nodelist: ReplicatedNodelist, done: str, far: str, approved: bool = True) -> None:
    """What was done, and whether the permanent store has it."""
    name = nodelist.source.name
    click.echo(f"{done}; {name} has it" if far == WRITTEN else f"{done}; {name} lacks it yet: {far}")
    if not approved and not nodelist.source.keeps_approval:
        click.echo(f"{name} has no place for approval and lists it like the others", err=True)
