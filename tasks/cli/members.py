"""`coordinator members …`: shows the state of each member, and changes the list of members for an operator."""

from collections.abc import Callable
from operator import attrgetter
from typing import Unpack

import click

import tasks.members as own
from coordinator.extending import (
    Acting,
    act_options,
    columns_of,
    commands_of,
    json_option,
    page_of,
    paged,
    print_list,
    verbs_in,
)  # fmt: skip
from tasks import instants
from tasks.app import coordinator
from tasks.catalog import one_object
from tasks.description import ask, describe_members
from tasks.member_node.check import NOBODY, Check, look
from tasks.member_node.member import Member
from tasks.service import service


@click.group(invoke_without_command=True)
@paged(1000)
@json_option
@click.pass_context
def members(ctx: click.Context, most: int, after: str, as_json_: bool) -> None:
    """Show each member, and each that left: its state, objects, failures, last and next run."""
    if ctx.invoked_subcommand:
        return
    conditions, after = page_of(own.conditions(service(), after, most + 1), most, attrgetter("member"))
    columns: dict[str, Callable[[own.Condition], object]] = {
        **columns_of("member", "state", "last_harvested", "objects", "gone", "failed", "next_tick"),
        "last run": _last_run,
        "what is wrong": _wrong,
    }
    print_list("members", conditions, columns, as_json_, after)


def _last_run(condition: own.Condition) -> str | None:
    return f"{instants.shown(condition.last_run)} {condition.outcome}" if condition.last_run else None


def _wrong(condition: own.Condition) -> str:
    """Return a text with all that is wrong with a member; "" if nothing is."""
    reasons = [f"not scheduled: {condition.unscheduled}"] if condition.unscheduled else []
    reasons += [f"left alone until {instants.shown(condition.left_alone_until)}"] if condition.left_alone_until else []
    failures = [f"{count} × {reason}" for reason, count in list(condition.failures.items())[:3]]
    reasons += [condition.error] if condition.error else failures
    reasons += [f"none of its {condition.slashes} pids with a slash is found"] if condition.slashes else []
    reasons += [f"its description cannot be read: {condition.undescribed}"] if condition.undescribed else []
    reasons += [f"proposes {', '.join(condition.proposes)}"] if condition.proposes else []
    return "; ".join(reasons)


as_option = click.option(
    "--as", "expected", metavar="ID", default=NOBODY, help="The member's id: it is asked with its row of TASKS_ACCESS."
)


@members.command()
@click.argument("where", metavar="URL|MEMBER")
@as_option
def check(where: str, expected: str) -> None:
    """Check whether a member can be synchronized. Give its base URL, or its id in the list."""
    if "://" not in where and where in (listed := service().nodelist.listed()):
        where, expected = listed[where].member.base_url, where
    if _checked(where, expected)[1]:
        raise click.exceptions.Exit(1)


def _checked(url: str, expected: str) -> tuple[Member | None, list[Check]]:
    """Check the member at a base URL, and print the result of each check. `expected`: the member's id, or NOBODY.

    Returns the member as it describes itself (None: it does not), and the failed checks.
    """
    member, failed = None, []
    for check in look(url, service().settings, expected):
        member = member or check.member
        failed += [] if check.ok else [check]
        click.echo(f"{'ok' if check.ok else 'NO':3} {check.name}: {check.detail}")
    return member, failed


@members.command()
@click.argument("where", metavar="URL")
@as_option
@act_options
def add(where: str, expected: str, **acting: Unpack[Acting]) -> None:
    """Add the member at a base URL to the list, as the member describes itself. It is not approved yet."""
    described, failed = _checked(where, expected)
    if described is None or failed:
        raise click.ClickException(f"not added: {failed[0].name}: {failed[0].detail}")
    done = own.add(described, **acting)
    click.echo("\n".join(done.lines))
    if done.remark:
        click.echo(done.remark, err=True)


for command in commands_of(verbs_in(own.acts).values(), "members"):
    members.add_command(command)


@members.command()
@click.argument("member", required=False)
def refresh(member: str | None) -> None:
    """Request MEMBER's description of itself, or that of each member, as happens once a day without this."""
    listed = service().nodelist.listed()
    if member is not None and member not in listed:
        raise own.UnknownMember(member)
    job_id = coordinator.submit("descriptions", describe_members.s()).id if member is None else ask(member).id
    click.echo(f"asked for {member or 'each member'}. To wait for it: coordinator wait {job_id}")


@members.command()
@click.argument("member")
@click.option("--revoke", is_flag=True, help="Make none: end the one that it has.")
@act_options
def token(member: str, revoke: bool, why: str, by: str, ticket: str) -> None:
    """Make a token for MEMBER's requests over HTTP, and print it; it is not shown again. An earlier token ends."""
    made = own.token(member, revoke=revoke, why=why, by=by, ticket=ticket)
    click.echo(made or f"{member} has no token")


@members.command()
@click.argument("member")
@click.argument("pid", required=False)
@click.option("--all", "all_", is_flag=True, help="All failures of MEMBER.")
def forget(member: str, pid: str | None, all_: bool) -> None:
    """Delete the failure of PID, such as a mistyped one, so that no run tries to fetch it from MEMBER again."""
    if all_ == (pid is not None):
        raise click.UsageError("give either PID or --all")
    count = one_object.forget(service().catalog, member, pid)
    if pid is not None and not count:
        raise click.ClickException(f"{pid} is no failed object of {member}: coordinator catalog {member} --failed")
    what = f"{pid} is" if pid is not None else f"{count} failed object{' is' if count == 1 else 's are'}"
    click.echo(f"{member}: {what} forgotten; an object that the member lists or somebody requests is tried again")
