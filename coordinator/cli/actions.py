"""The commands that act: put a job in line, wait for it, end it, steer a lane or a node.

Each act has a reason, an author and perhaps a ticket: `--why`, `--by` (user@host by default), `--ticket`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import update_wrapper
from typing import Literal, TypeVar, Unpack, cast

import click

from coordinator.author import Acting
from coordinator.cli.filters import filtered
from coordinator.cli.format import as_json, fitted, listing, more, table
from coordinator.cli.session import (
    act_options,
    json_option,
    paged,
    session_of,
    with_coordinator,
)
from coordinator.cli.show import job_text, node_text
from coordinator.client.coordinator import Coordinator
from coordinator.diagnosis.summary import Summary
from coordinator.errors import UnknownJob
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.request import UNKNOWN, WHEN_BUSY
from coordinator.jobs.search import FILTERS
from coordinator.jobs.states import End
from coordinator.jobs.submission import Submission
from coordinator.jobs.trail import Action
from coordinator.lanes.bulk import LANE_VERBS, ActingOn, Verb
from coordinator.lanes.client import ENDS
from coordinator.lanes.plan import Plan
from coordinator.store.times import moment, span_text
from coordinator.store.values import Json

Shown = tuple[dict[str, Json], str]  # for programs; for people
K = TypeVar("K")


def _json(kind: type[K], name: str) -> Callable[[click.Context, click.Parameter, str], K]:
    """Reads an option that is a JSON value of this kind."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> K:
        try:
            parsed = json.loads(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not JSON: {error}", ctx, param) from error
        if not isinstance(parsed, kind):
            raise click.BadParameter(f"{value!r} is no {name}", ctx, param)
        return parsed

    return read


arguments_option = click.option(
    "--args", "arguments", callback=_json(list, "JSON list"), default="[]", metavar="JSON", help="A list."
)
kwargs_option = click.option(
    "--kwargs", callback=_json(dict, "JSON object"), default="{}", metavar="JSON", help="An object."
)


def acts(argument: str, metavar: str) -> Callable[[Callable[..., Shown]], click.Command]:
    """Make a command that acts on `argument` of a function that returns the result for programs and for people."""

    def add(function: Callable[..., Shown]) -> click.Command:
        def act(coordinator: Coordinator, as_json_: bool, **options: object) -> None:
            _show(function(coordinator, **options), as_json_)

        named: Callable[..., None] = update_wrapper(act, function)
        command = act_options(json_option(with_coordinator(named)))
        return click.command()(click.argument(argument, metavar=metavar)(command))

    return add


@click.command()
@click.argument("key")
@click.argument("task")
@arguments_option
@kwargs_option
@click.option("--id", "job_id", help="The job's id. A second submit under it submits nothing.")
@click.option(
    "--when-busy",
    type=click.Choice(WHEN_BUSY),
    default=WHEN_BUSY[0],
    show_default=True,
    help="If the lane has jobs: stand in line, do nothing, coalesce into an equal job, or cancel the one at work.",
)
@click.option(
    "--if-unknown",
    type=click.Choice(UNKNOWN),
    default=UNKNOWN[0],
    show_default=True,
    help="If nobody in a living fleet has the task: refuse it, or let the job wait for a node that has it.",
)
@click.option("--instance", help="Grab this instance of the key: it is done once, and later submits lose.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the job is over. Exit status 0 when it succeeded.")
@click.option("--timeout", type=float, help="With --wait: seconds. After that the command ends, and the job goes on.")
@json_option
@with_coordinator
def submit(
    coordinator: Coordinator,
    key: str,
    task: str,
    arguments: list[Json],
    kwargs: dict[str, Json],
    job_id: str | None,
    when_busy: Literal["queue", "skip", "defer", "replace"],
    instance: str | None,
    if_unknown: Literal["refuse", "wait"],
    waits: bool,
    timeout: float | None,
    as_json_: bool,
) -> None:
    """Put a job that runs TASK in the lane KEY."""
    if timeout is not None and not waits:
        raise click.UsageError("--timeout is for --wait")
    signature = {"task": task, "args": arguments, "kwargs": kwargs, "options": {}}
    submission = coordinator.submit(
        key, signature, job_id=job_id, when_busy=when_busy, instance=instance, if_unknown=if_unknown
    )
    if waits and (submission.accepted or (submission.grab and submission.grab.state == "incomplete")):
        _until_over(coordinator, submission.id, timeout, as_json_)
        return
    if as_json_:
        click.echo(as_json(_as_dict(submission)))
    else:
        click.echo(_submitted(submission, key) + _why_in_front(coordinator, submission))
    if not submission.accepted:
        raise click.exceptions.Exit(1)


def _as_dict(submission: Submission) -> dict[str, Json]:
    fields: dict[str, Json] = {"id": submission.id, "outcome": submission.outcome, "position": submission.position}
    if (grab := submission.grab) is None:
        return fields
    return fields | grab._asdict() | {"winner": grab.winner and dict(grab.winner._asdict())}


def _submitted(submission: Submission, key: str) -> str:
    """The outcome as a sentence."""
    if submission.outcome == "lost" and (grab := submission.grab) and grab.winner:
        done = "has done it" if grab.state == "complete" else "does it"
        return f"{grab.winner.identifier} ({grab.winner.place}) {done}: nothing was submitted"
    if not submission.accepted:
        return f"{key} is busy: nothing was submitted"
    outcomes = {"started": "is in front", "duplicate": "was submitted before"}
    outcomes["queued"] = "is in front" if submission.position == 0 else "is queued"
    outcomes |= {"coalesced": "coalesced into a waiting job", "collected": "is held by its sorter"}
    ahead = submission.position
    behind = f", behind {ahead} other{'s' if ahead > 1 else ''}" if ahead > 0 else ""
    return f"{submission.id} {outcomes[submission.outcome]}{behind}"


def _why_in_front(coordinator: Coordinator, submission: Submission) -> str:
    """The reason why a job in front did not start: its lane is paused, or no living node can run it."""
    if submission.outcome != "queued" or submission.position != 0:
        return ""
    try:
        return f": {coordinator.why(submission.id).causes[0].text}"
    except UnknownJob:
        return ""  # it was over at once, and its record is gone


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--timeout", type=float, help="Seconds. After that the command ends, and the job goes on.")
@json_option
@with_coordinator
def wait(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    """Wait until a job is over, or held. Exit status 0 when it succeeded."""
    _until_over(coordinator, job_id, timeout, as_json_)


class _Why(click.Command):
    """Has an option for each kind of thing that the app explains (`Extension.why`)."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        session = session_of(ctx.find_root())
        kinds = [kind for one in (session.coordinator.extensions if session.app else ()) for kind in one.why]
        more = [click.Option([f"--{kind}"], metavar="NAME", help=f"A {kind}.") for kind in kinds]
        return [*super().get_params(ctx), *more]


@click.command(cls=_Why)
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--key", metavar="KEY", help="A lane: who holds it, and who waits for what.")
@click.option("--node", metavar="NODE", help="A node: why it does nothing.")
@click.option("--entry", metavar="NAME", help="An entry of the schedule: why it does not run.")
@click.option("--summary", is_flag=True, help="All that waits: how many jobs for each reason, and the longest wait.")
@json_option
@with_coordinator
def why(coordinator: Coordinator, /, job_id: str | None, summary: bool, as_json_: bool, **others: str) -> None:
    """Say why a job is where it is: a sentence, all causes down to their roots, and what frees it.

    The page docs/why.md explains each code.
    """
    if summary:
        if job_id or any(others.values()):
            raise click.UsageError("--summary is about all that waits: name nothing beside it")
        whole = coordinator.why_summary()
        click.echo(as_json(whole) if as_json_ else _summary_text(whole))
    else:
        answer = coordinator.why(job_id, **others)
        click.echo(as_json(answer) if as_json_ else fitted(str(answer)))


def _summary_text(summary: Summary) -> str:
    if not summary.rows:
        return "nothing waits"
    rows = (
        (row.code, row.count, "-" if row.longest is None else span_text(row.longest), row.example, row.text)
        for row in summary.rows
    )
    part = "" if summary.complete else "; a part was looked at, so that the longest waits are the longest of that part"
    shown = table(("code", "jobs", "longest", "example", "they"), rows)
    return f"{shown}\n" + fitted(f"{summary.waiting} wait, as of {moment(summary.as_of)}{part}")


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be hit, and what starts then.")


def plan_text(plan: Plan) -> str:
    """The plan as a table, and what starts."""
    left = [f"{plan.at_work} at work stay as they are"] if plan.at_work else []
    more = "" if plan.complete else " or more"
    if not plan.count:
        return "\n".join([f"{plan.act} would change nothing{more and ' of what half a second was enough for'}", *left])
    lines = [table(("would be hit", "state", "becomes"), ((hit.thing, hit.state, hit.becomes) for hit in plan.hits))]
    if plan.count > len(plan.hits):
        lines.append(f"and {plan.count - len(plan.hits)}{more} more")
    return "\n".join([*lines, *left, f"starts then: {', '.join(plan.starts) or 'nothing'}"])


yes_option = click.option("--yes", is_flag=True, help="Where there may be many: ask nothing.")


def acts_on_jobs(function: Callable[..., Shown]) -> click.Command:
    """Make a command that acts on the job ID, or on all jobs that a filter finds."""

    def act(coordinator: Coordinator, job_id: str | None, dry_run: bool, **asked: object) -> None:
        given = {name: asked.pop(name) for name in FILTERS}
        wanted = {name: value for name, value in given.items() if value not in ("", ())}
        if bool(wanted) == (job_id is not None):
            raise click.UsageError("name one job by its ID, or several by options such as --state and --key")
        if job_id is None:
            _act_on_many(coordinator, function.__name__, dry_run, wanted | asked)
        else:
            as_json_, _ = asked.pop("as_json_"), asked.pop("yes")
            planned = getattr(coordinator, function.__name__)(job_id, dry_run=True, **asked) if dry_run else None
            _show(_shown_plan(planned) if planned else function(coordinator, job_id, **asked), as_json_)

    named: Callable[..., None] = update_wrapper(act, function)
    command = filtered(dry_run_option(yes_option(json_option(with_coordinator(named)))))
    return click.command()(click.argument("job_id", metavar="[ID]", required=False)(act_options(command)))


def acts_on_lanes(function: Callable[..., Shown]) -> click.Command:
    """Make a command that acts on the lane KEY, or on all that begin so."""

    def act(coordinator: Coordinator, key: str, dry_run: bool, **asked: object) -> None:
        if key.endswith(("/", "*")) or (dry_run and not asked.get("holder")):
            if asked.pop("holder", ""):
                raise click.UsageError("--holder is for one lane")
            _act_on_many(coordinator, function.__name__, dry_run, {"key": key, **asked})
            return
        as_json_, _ = asked.pop("as_json_"), asked.pop("yes")
        if dry_run:
            _show(_shown_plan(coordinator.release(key, holder=str(asked["holder"]), dry_run=True)), as_json_)
        else:
            _show(function(coordinator, key, **asked), as_json_)

    named: Callable[..., None] = update_wrapper(act, function)
    command = dry_run_option(yes_option(json_option(with_coordinator(named))))
    return click.command()(click.argument("key", metavar="KEY")(act_options(command)))


def _show(shown: Shown, as_json_: object) -> None:
    value, text = shown
    click.echo(as_json(value) if as_json_ else text)


def _shown_plan(plan: Plan) -> Shown:
    return asdict(plan), plan_text(plan)


def _act_on_many(coordinator: Coordinator, verb: str, dry_run: bool, asked: dict[str, object]) -> None:
    """Show the plan; or ask, then act in portions. The progress goes to stderr: a bar, or lines without a terminal."""
    as_json_, yes = asked.pop("as_json_"), asked.pop("yes")
    wanted = cast(ActingOn, asked)
    plan = coordinator.act(cast(Verb, verb), dry_run=True, **wanted)
    if dry_run or (plan.complete and not plan.count):
        _show(_shown_plan(plan) if dry_run else ({"done": 0}, plan_text(plan)), as_json_)
        return
    thing = "lane" if verb in LANE_VERBS else "job"
    if not yes:
        more = "" if plan.complete else " or more"
        click.confirm(f"{verb} {_several(plan.count, thing)}{more}?", abort=True, err=True)
    done, terminal = 0, sys.stderr.isatty()
    with click.progressbar(length=plan.count, label=verb, file=sys.stderr, hidden=not terminal) as bar:
        for progress in coordinator.act(cast(Verb, verb), **wanted):
            bar.length = progress.total
            bar.update(progress.done - done)
            done = progress.done
            if done and not terminal:
                click.echo(f"{verb}: {done} of {progress.total}", err=True)
    _show(({"done": done}, f"{verb}: {_several(done, thing)}"), as_json_)


def _several(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


@acts_on_jobs
def cancel(coordinator: Coordinator, job_id: str, **acting: Unpack[Acting]) -> Shown:
    """End a job, or all jobs that options such as --state and --key name.

    A running job's process is stopped first; then the rollback runs. Several are counted first, then ended in portions;
    given again, the command does the rest.
    """
    state = coordinator.cancel(job_id, **acting)
    ending = {"running": "is being stopped", "cancelled": "is cancelled"}
    text = ending.get(state, f"was over: {state}" if state in TERMINAL else f"is {state}")
    return {"id": job_id, "state": state}, f"{job_id} {text}"


_to = click.option(
    "--to", type=click.Choice(ENDS), default=ENDS[0], show_default=True, help="Among the jobs of its priority."
)


@acts_on_jobs
@_to
def retry(coordinator: Coordinator, job_id: str, to: End, **acting: Unpack[Acting]) -> Shown:
    """Run a job again, or all jobs that options such as --state and --task name.

    A held job goes on, a job that waits for its retry runs at once, and a job that ended badly runs again as a new one.
    """
    state = coordinator.retry(job_id, to=to, **acting)
    done = "" if state in ("ready", "waiting") else ": only a job that is held, retrying, or ended badly runs again"
    return {"id": job_id, "state": state}, f"{job_id} is {state}{done}"


@acts_on_jobs
@click.option("--priority", type=int, help="-255 to 255; the greater goes first.")
@_to
def move(coordinator: Coordinator, job_id: str, priority: int | None, to: End, **acting: Unpack[Acting]) -> Shown:
    """Move a waiting job in all its lanes, or all jobs that options such as --key and --task name; these keep their
    order.
    """
    state = coordinator.move(job_id, priority=priority, to=to, **acting)
    return {"id": job_id, "state": state}, f"{job_id} is moved to the {to} of its priority: {state}"


@acts_on_lanes
@click.argument("limit", metavar="N", type=int)
def limit(coordinator: Coordinator, key: str, limit: int, **acting: Unpack[Acting]) -> Shown:
    """Let N jobs of a lane run at once, or of all lanes that begin so: 'sync/*'.

    1 is usual. With 0 no job starts, and the running ones go on.
    """
    before = coordinator.set_limit(key, limit, **acting)
    return {"key": key, "limit": limit, "before": before}, f"up to {limit} at once in {key}, {before} before"


@acts_on_lanes
@click.option("--holder", default="", metavar="ID", help="Only if this job holds it, so that to ask twice is safe.")
def release(coordinator: Coordinator, key: str, holder: str, **acting: Unpack[Acting]) -> Shown:
    """Take a lane from its holder, or all lanes that begin so: 'sync/*'.

    Of several, from the one that was started first. That job ends as cancelled, without rollback, and the next one
    starts at once.
    """
    held = coordinator.release(key, holder=holder, **acting)
    nobody = f"job {holder} does not hold {key}" if holder else f"nobody held {key}"
    return {"key": key, "released": held}, f"{key} is taken from job {held}" if held else nobody


@acts_on_lanes
def pause(coordinator: Coordinator, key: str, **acting: Unpack[Acting]) -> Shown:
    """Let no more jobs start in a lane, or in all that are there and begin so: 'sync/*'. Running ones go on."""
    new = coordinator.pause(key, **acting)
    return {"key": key, "paused": new}, f"{key} is paused" if new else f"{key} was paused already"


@acts_on_lanes
def resume(coordinator: Coordinator, key: str, **acting: Unpack[Acting]) -> Shown:
    """Let a paused lane go on, or all that begin so: 'sync/*'."""
    was = coordinator.resume(key, **acting)
    return {"key": key, "resumed": was}, f"{key} goes on" if was else f"{key} was not paused"


@acts("old", "OLD")
@click.argument("new", metavar="NEW")
@dry_run_option
def retarget(coordinator: Coordinator, old: str, new: str, dry_run: bool, **acting: Unpack[Acting]) -> Shown:
    """Give jobs another task.

    The jobs of the task OLD that are not at work run NEW, where its nodes are. Later steps of chains, rollbacks and
    links that name OLD name NEW.
    """
    if dry_run:
        return _shown_plan(coordinator.retarget(old, new, dry_run=True))
    done = coordinator.retarget(old, new, **acting)
    left = f"; {done.at_work} at work stay as they are: ask again later" if done.at_work else ""
    text = f"{_several(done.jobs, 'job')} with {old} name {new}{left}"
    return {"old": old, "new": new, **done._asdict()}, text


@acts("node", "NODE")
def drain(coordinator: Coordinator, node: str, **acting: Unpack[Acting]) -> Shown:
    """Give a node no new jobs until `undrain`.

    Its running jobs end there, or go to other nodes after `drain_timeout`.
    """
    new = coordinator.drain(node, **acting)
    alive = node in [living.name for living in coordinator.nodes()]
    unknown = "" if alive else "; no node of that name is alive, and it gets no jobs when it comes"
    return {"node": node, "drained": new}, f"{node} {'drains' if new else 'was drained already'}{unknown}"


@acts("node", "NODE")
def undrain(coordinator: Coordinator, node: str, **acting: Unpack[Acting]) -> Shown:
    """Give a drained node jobs again."""
    was = coordinator.undrain(node, **acting)
    return {"node": node, "undrained": was}, f"{node} {'takes jobs again' if was else 'was not drained'}"


@click.command()
@paged(50)
@click.option("--by", metavar="NAME", help="Only acts of this author.")
@click.option("--thing", metavar="THING", help="Only acts on this, such as 'job 7f3', or on a kind: lane.")
@json_option
@with_coordinator
def actions(coordinator: Coordinator, most: int, after: str, by: str | None, thing: str | None, as_json_: bool) -> None:
    """List what operators did: who, when, on what and why, the newest first."""
    listed = coordinator.actions(most, after, by=by, thing=thing)
    heads = ("when", "by", "act", "thing", "before", "after", "ticket", "why")
    rows = ((one.at, one.by, one.act, shown_lane(one.thing), *_shown(one)) for one in listed)
    after = listed[-1].id if len(listed) == most else ""
    click.echo(listing("actions", listed, after) if as_json_ else table(heads, rows))
    more(after)


def _shown(action: Action) -> tuple[str, ...]:
    return action.before, action.after, action.ticket, action.why


@click.command("show")
@click.argument("name", metavar="NODE")
@json_option
@with_coordinator
def show_node(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """Show a node: its queues and tasks, how busy it is, and when and why it was rung."""
    nodes = [node for node in coordinator.nodes() if node.name == name]
    if not nodes:
        raise click.ClickException(f"no node {name} is alive")
    node = nodes[0]
    click.echo(as_json(node) if as_json_ else node_text(node))


NODE_COMMANDS = (show_node, drain, undrain)
COMMANDS = (submit, wait, why, cancel, retry, move, limit, release, pause, resume, retarget, actions)


def _until_over(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    job = coordinator.wait(job_id, timeout)
    click.echo(as_json(job) if as_json_ else job_text(job))
    if job.state != "succeeded":
        raise click.exceptions.Exit(1)
