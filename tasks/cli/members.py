"""`coordinator members …`: the condition of each member, and the operator's changes of the list."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime

import click

from coordinator import UnknownJob
from coordinator.cli.format import as_json, table
from coordinator.cli.session import by_option, json_option, why_option
from coordinator.scheduler.entries import next_tick
from tasks import instants
from tasks.app import coordinator
from tasks.catalog import one_object
from tasks.catalog.former import former
from tasks.catalog.former import purge as purge_catalog
from tasks.cli.errors import OneLine, unknown
from tasks.harvest.silence import silence
from tasks.member_node.check import NOBODY, Check, look
from tasks.member_node.member import Member
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import Listed
from tasks.schedules import lane_of, scheduled
from tasks.service import Holdings, service


@dataclass(frozen=True)
class MemberRow:
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


def _condition(member_id: str, listed: Listed | None, here: Holdings) -> MemberRow:
    catalog, member = here.catalog, listed and listed.member
    summary = catalog.summary(member_id)
    silent = silence(catalog, member_id)
    lane = coordinator.lane(lane_of(member_id), 1)
    reasons = Counter(failure.reason for failure in catalog.failed(member_id, limit=1000))
    obstacle = _obstacle(listed)
    schedule = member and scheduled(member, here.settings.zone)
    return MemberRow(
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


@click.group(cls=OneLine, invoke_without_command=True)
@json_option
@click.pass_context
def members(ctx: click.Context, as_json_: bool) -> None:
    """Show each member, and each that left: its state, objects, failures, last and next run."""
    if ctx.invoked_subcommand:
        return
    here = service()
    listed = here.nodelist.listed()
    conditions = [_condition(one, listed.get(one), here) for one in (*listed, *former(here.catalog, listed))]
    if as_json_:
        click.echo(as_json([asdict(condition) for condition in conditions]))
        return
    heads = ("member", "state", "last harvested", "objects", "gone", "failed", "next tick", "last run", "what is wrong")
    fields = ("member", "state", "last_harvested", "objects", "gone", "failed", "next_tick")
    rows = (
        [*(getattr(condition, name) for name in fields), _last_run(condition), _wrong(condition)]
        for condition in conditions
    )
    click.echo(table(heads, rows))


def _last_run(condition: MemberRow) -> str | None:
    return f"{instants.shown(condition.last_run)} {condition.outcome}" if condition.last_run else None


def _wrong(condition: MemberRow) -> str:
    reasons = [f"not scheduled: {condition.unscheduled}"] if condition.unscheduled else []
    reasons += [f"left alone until {instants.shown(condition.left_alone_until)}"] if condition.left_alone_until else []
    failures = [f"{count} × {reason}" for reason, count in list(condition.failures.items())[:3]]
    reasons += [condition.error] if condition.error else failures
    return "; ".join(reasons)


as_option = click.option(
    "--as", "expected", metavar="ID", default=NOBODY, help="The member's id: it is asked with its row of TASKS_ACCESS."
)


@members.command()
@click.argument("where", metavar="URL|MEMBER")
@as_option
def check(where: str, expected: str) -> None:
    """Check whether the member can be synchronized that has this base URL, or this id in the list."""
    if "://" not in where and where in (listed := service().nodelist.listed()):
        where, expected = listed[where].member.base_url, where
    if _checked(where, expected)[1]:
        raise click.exceptions.Exit(1)


def _checked(url: str, expected: str) -> tuple[Member | None, list[Check]]:
    """Print each check. Returns the member, if it describes itself, and the failed checks."""
    member, failed = None, []
    for check in look(url, service().settings, expected):
        member = member or check.member
        failed += [] if check.ok else [check]
        click.echo(f"{'ok' if check.ok else 'NO':3} {check.name}: {check.detail}")
    return member, failed


def acts(*, argument: str = "MEMBER") -> Callable[[Callable[..., None]], click.Command]:
    """Make a command that changes the list. The history keeps `--why` and `--by`."""

    def add(function: Callable[..., None]) -> click.Command:
        command = why_option(by_option(function))
        return members.command()(click.argument("member", metavar=argument)(command))

    return add


@acts(argument="URL")
@as_option
def add(member: str, expected: str, why: str, by: str) -> None:
    """Add the member at a base URL, as it describes itself; approve it later."""
    described, failed = _checked(member, expected)
    if described is None or failed:
        raise click.ClickException(f"not added: {failed[0].name}: {failed[0].detail}")
    new = Listed(member=Dates().put_on(described), approved=False)

    def to(before: Listed | None) -> Listed:
        if before is not None:
            raise ValueError(f"not added: {described.identifier} is already in the list, at {before.member.base_url}")
        return new

    nodelist = service().nodelist
    far = nodelist.change(described.identifier, to, why=f"added: {why}", by=by)
    _print(nodelist, f"{described.identifier} is in the list", far, approved=False)
    click.echo(
        f"it is not synchronized yet; to approve it: coordinator members approve {described.identifier} --why TEXT"
    )


@acts()
def approve(member: str, why: str, by: str) -> None:
    """Let the service synchronize a member."""
    obstacle = _set_approved(member, True, f"approved: {why}", by).member.obstacle
    if obstacle:
        click.echo(f"{member} still cannot be synchronized: {obstacle}", err=True)


@acts()
def suspend(member: str, why: str, by: str) -> None:
    """Stop synchronizing a member; it stays in the list."""
    _set_approved(member, False, f"suspended: {why}", by)


def _set_approved(member: str, approved: bool, why: str, by: str) -> Listed:
    def to(before: Listed | None) -> Listed:
        if before is None:
            raise unknown(member)
        changed.append(before.model_copy(update={"approved": approved}))
        return changed[-1]

    changed: list[Listed] = []
    nodelist = service().nodelist
    far = nodelist.change(member, to, why=why, by=by)
    _print(nodelist, f"{member} is {'approved' if approved else 'suspended'}", far, approved=approved)
    return changed[-1]


@acts()
def reset(member: str, why: str, by: str) -> None:
    """Harvest a member from its beginning again, at its next synchronization."""
    nodelist = service().nodelist
    try:
        far = nodelist.reset(member, f"reset: {why}", by)
    except KeyError:
        raise unknown(member) from None
    _print(nodelist, f"{member} will be harvested from its beginning", far)


@acts()
def remove(member: str, why: str, by: str) -> None:
    """Take a member out of the list, and cancel its syncs; the catalog keeps its objects."""
    here = service()

    def to(before: Listed | None) -> None:
        if before is None:
            _check_former(member, here)

    far = here.nodelist.change(member, to, why=f"removed: {why}", by=by)
    cancelled = sum(_cancel(job_id, why, by) for job_id in coordinator.lane(lane_of(member)).jobs)
    _print(here.nodelist, f"{member} is not in the list", far)
    if cancelled:
        click.echo(f"{cancelled} of its syncs {'is' if cancelled == 1 else 'are'} cancelled")
    if objects := here.catalog.summary(member).objects:
        click.echo(f"the catalog keeps its {objects} objects; to delete them: coordinator members purge {member}")


def _check_former(member: str, here: Holdings) -> None:
    """Raises ClickException where neither the catalog nor the notes about the permanent store know the member."""
    if here.nodelist.document.stored_of(member) is None and member not in former(here.catalog, ()):
        raise unknown(member)


def _cancel(job_id: str, why: str, by: str) -> bool:
    try:
        coordinator.cancel(job_id, why=f"its member was removed: {why}", by=by)
    except UnknownJob:  # it is over, or a lock in plain code
        return False
    return True


@acts()
def purge(member: str, why: str, by: str) -> None:
    """Delete from the catalog all that it has of a member that left the list."""
    here = service()
    if member in here.nodelist.listed():
        raise click.ClickException(f"{member} is in the list; first: coordinator members remove {member} --why TEXT")
    _check_former(member, here)
    with coordinator.lock(lane_of(member)) as lease:  # so no sync writes meanwhile, and none that is late afterwards
        here.nodelist.purged(member, fence=lease.fence, why=f"purged: {why}", by=by)
        count = purge_catalog(here.catalog, member, fence=lease.fence, check=lease.check)
    click.echo(f"{member}: {count} objects are deleted from the catalog")


@members.command()
@click.argument("member")
@click.argument("pid", required=False)
@click.option("--all", "all_", is_flag=True, help="All failures of MEMBER.")
def forget(member: str, pid: str | None, all_: bool) -> None:
    """Take PID from the failures of MEMBER, such as a mistyped one: no run tries it again unless somebody asks."""
    if all_ == (pid is not None):
        raise click.UsageError("give either PID or --all")
    count = one_object.forget(service().catalog, member, pid)
    if pid is not None and not count:
        raise click.ClickException(f"{pid} is no failed object of {member}: coordinator catalog {member} --failed")
    what = f"{pid} is" if pid is not None else f"{count} failed object{' is' if count == 1 else 's are'}"
    click.echo(f"{member}: {what} forgotten; what the member lists or somebody asks for comes back")


def _print(nodelist: ReplicatedNodelist, done: str, far: str, approved: bool = True) -> None:
    """Print the change, and whether the permanent store has it."""
    name = nodelist.store.name
    click.echo(f"{done}; {name} has it" if far == WRITTEN else f"{done}; {name} does not have it yet: {far}")
    if not approved and not nodelist.store.keeps_approval:
        click.echo(f"{name} has no place for approval, so it lists this member like all others", err=True)
