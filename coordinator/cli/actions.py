"""The commands that act: put a job in line, wait for it, end it, steer a lane or a node.

Each act has a reason, an author and perhaps a ticket: `--why`, `--by` (user@host by default), `--ticket`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import update_wrapper
from operator import attrgetter
from typing import Literal, TypeVar, cast

import click

from coordinator.cli.filters import filtered
from coordinator.cli.format import as_json, as_table, columns_of, fitted, print_list
from coordinator.cli.session import Wrong, act_options, json_option, paged, session_of, with_app, with_coordinator
from coordinator.cli.show import job_text, node_text
from coordinator.client import acts
from coordinator.client.acts import Done, counted
from coordinator.client.coordinator import Coordinator
from coordinator.cursor import page_of
from coordinator.diagnosis.summary import Summary
from coordinator.errors import StoreRefused, StoreUnavailable, UnknownJob
from coordinator.jobs.request import UNKNOWN, WHEN_BUSY
from coordinator.jobs.search import FILTERS
from coordinator.jobs.submission import Submission
from coordinator.jobs.trail import Action
from coordinator.jobs.validation import shown_lane
from coordinator.lanes.bulk import LANE_VERBS, ActingOn, Verb
from coordinator.lanes.client import ENDS
from coordinator.lanes.plan import Plan
from coordinator.store.times import moment, span_text
from coordinator.store.values import Json

Act = Callable[..., Done]
Options = Callable[[Callable[..., None]], Callable[..., None]]
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


def command_of(function: Act, argument: str, metavar: str, *options: Options, name: str = "") -> click.Command:
    """Make a command of an act on the thing that `argument` names."""

    def act(coordinator: Coordinator, as_json_: bool, dry_run: bool = False, **values: object) -> None:
        _show(_done(coordinator, function, dry_run, **values), as_json_)

    return _command(act, function, click.argument(argument, metavar=metavar), json_option, *options, name=name)


def _done(coordinator: Coordinator, function: Act, dry_run: bool, **values: object) -> Done:
    """Do it; or show the plan, by the coordinator's call of the same name."""
    if not dry_run:
        return function(coordinator, **values)
    plan: Plan = getattr(coordinator, function.__name__)(dry_run=True, **values)
    return asdict(plan), plan_text(plan)


def _command(
    act: Callable[..., None], function: Act, argument: Options, *options: Options, name: str = ""
) -> click.Command:  # fmt: skip
    """Make a command of `act`, with the name and the help of `function`."""
    command = with_coordinator(update_wrapper(act, function))
    inside_out: list[Options] = [*reversed(options), act_options, argument]
    for option in inside_out:
        command = option(command)
    return click.command(name or function.__name__)(command)


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
    coordinator.job(job_id)  # a wait outlives an outage, and a person wants to know that Redis is away from the start
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
        click.echo(as_json(answer) if as_json_ else fitted(with_app(str(answer))))


def _summary_text(summary: Summary) -> str:
    if not summary.rows:
        return "nothing waits"
    rows = (
        (row.code, row.count, "-" if row.longest is None else span_text(row.longest), row.example, row.text)
        for row in summary.rows
    )
    part = "" if summary.complete else "; a part was looked at, so that the longest waits are the longest of that part"
    shown = as_table(("code", "jobs", "longest", "example", "they"), rows)
    return f"{shown}\n" + fitted(f"{summary.waiting} wait, as of {moment(summary.as_of)}{part}")


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be hit, and what starts then.")


def plan_text(plan: Plan) -> str:
    """The plan as a table, and what starts."""
    left = [f"{plan.at_work} at work stay as they are"] if plan.at_work else []
    more = "" if plan.complete else " or more"
    if not plan.count:
        return "\n".join([f"{plan.act} would change nothing{more and ' of what half a second was enough for'}", *left])
    lines = [as_table(("would be hit", "state", "becomes"), ((hit.thing, hit.state, hit.becomes) for hit in plan.hits))]
    if plan.count > len(plan.hits):
        lines.append(f"and {plan.count - len(plan.hits)}{more} more")
    return "\n".join([*lines, *left, f"starts then: {', '.join(plan.starts) or 'nothing'}"])


yes_option = click.option("--yes", is_flag=True, help="Where there may be many: ask nothing.")


def command_on_jobs(function: Act, *options: Options) -> click.Command:
    """Make a command that acts on the job ID, or on all jobs that a filter finds."""

    def act(
        coordinator: Coordinator, job_id: str | None, dry_run: bool, yes: bool, as_json_: bool, **asked: object
    ) -> None:  # fmt: skip
        given = {name: asked.pop(name) for name in FILTERS}
        wanted = {name: value for name, value in given.items() if value not in ("", ())}
        if bool(wanted) == (job_id is not None):
            raise click.UsageError("name one job by its ID, or several by options such as --state and --key")
        if job_id is None:
            _act_on_many(coordinator, function.__name__, dry_run, yes, as_json_, wanted | asked)
        else:
            _show(_done(coordinator, function, dry_run, job_id=job_id, **asked), as_json_)

    argument = click.argument("job_id", metavar="[ID]", required=False)
    return _command(act, function, argument, filtered, dry_run_option, yes_option, json_option, *options)


def command_on_lanes(function: Act, *options: Options) -> click.Command:
    """Make a command that acts on the lane KEY, or on all that begin so."""

    def act(
        coordinator: Coordinator, key: str, dry_run: bool, yes: bool, as_json_: bool, **asked: object
    ) -> None:  # fmt: skip
        if asked.get("holder") or not (dry_run or key.endswith("*")):
            _show(_done(coordinator, function, dry_run, key=key, **asked), as_json_)
        else:
            asked.pop("holder", None)
            _act_on_many(coordinator, function.__name__, dry_run, yes, as_json_, {"key": key, **asked})

    argument = click.argument("key", metavar="KEY")
    return _command(act, function, argument, dry_run_option, yes_option, json_option, *options)


def _show(shown: Done, as_json_: object) -> None:
    value, text = shown
    click.echo(as_json(value) if as_json_ else text)


def _act_on_many(
    coordinator: Coordinator, name: str, dry_run: bool, yes: bool, as_json_: bool, asked: dict[str, object]
) -> None:  # fmt: skip
    """Show the plan; or ask, then act in portions. The progress goes to stderr: a bar, or lines without a terminal."""
    verb, wanted = cast(Verb, name), cast(ActingOn, asked)
    plan = coordinator.act(verb, dry_run=True, **wanted)
    if dry_run or (plan.complete and not plan.count):
        return _show((asdict(plan) if dry_run else {"done": 0}, plan_text(plan)), as_json_)
    thing = "lane" if verb in LANE_VERBS else "job"
    if not yes:
        more = "" if plan.complete else " or more"
        click.confirm(f"{verb} {counted(plan.count, thing)}{more}?", abort=True, err=True)
    done, terminal = 0, sys.stderr.isatty()
    try:
        with click.progressbar(length=plan.count, label=verb, file=sys.stderr, hidden=not terminal) as bar:
            for progress in coordinator.act(verb, **wanted):
                bar.length = progress.total
                bar.update(progress.done - done)
                done = progress.done
                if done and not terminal:
                    click.echo(f"{verb}: {done} of {progress.total}", err=True)
    except (KeyboardInterrupt, StoreRefused, StoreUnavailable) as error:
        why = str(error) or "stopped"
        said = f"{why}; {verb}: {counted(done, thing)} or more are done, and the same command does the rest"
        raise Wrong(said) from error
    _show(({"done": done}, f"{verb}: {counted(done, thing)}"), as_json_)


_to = click.option(
    "--to", type=click.Choice(ENDS), default=ENDS[0], show_default=True, help="Among the jobs of its priority."
)
_priority = click.option("--priority", type=int, help="-255 to 255; the greater goes first.")
_holder = click.option(
    "--holder", default="", metavar="ID", help="Only if this job holds it, so that to ask twice is safe."
)


@click.command()
@paged(50)
@click.option("--by", metavar="NAME", help="Only acts of this author.")
@click.option("--thing", metavar="THING", help="Only acts on this, such as 'job 7f3', or on a kind: lane.")
@json_option
@with_coordinator
def actions(coordinator: Coordinator, most: int, after: str, by: str | None, thing: str | None, as_json_: bool) -> None:
    """List what operators did: who, when, on what and why, the newest first."""
    listed, after = page_of(coordinator.actions(most + 1, after, by=by, thing=thing), most, attrgetter("id"))
    columns: dict[str, Callable[[Action], object]] = {
        "when": lambda action: action.at,
        **columns_of("by", "act"),
        "thing": lambda action: shown_lane(action.thing),
        **columns_of("before", "after", "ticket", "why"),
    }
    print_list("actions", listed, columns, as_json_, after)


@click.command("show")
@click.argument("name", metavar="NODE")
@json_option
@with_coordinator
def show_node(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """Show a node: its queues and tasks, how busy it is, and when and why it was woken."""
    nodes = [node for node in coordinator.nodes() if node.name == name]
    if not nodes:
        raise Wrong(f"no node {name} is alive: coordinator nodes lists those that are, and those that were lost")
    node = nodes[0]
    click.echo(as_json(node) if as_json_ else node_text(node))


NODE_COMMANDS = (show_node, *(command_of(act, "node", "NODE") for act in (acts.drain, acts.undrain)))
COMMANDS = (
    submit,
    wait,
    why,
    command_on_jobs(acts.cancel),
    command_on_jobs(acts.retry, _to),
    command_on_jobs(acts.move, _priority, _to),
    command_on_lanes(acts.limit, click.argument("limit", metavar="N", type=int)),
    command_on_lanes(acts.release, _holder),
    command_on_lanes(acts.pause),
    command_on_lanes(acts.resume),
    command_of(acts.retarget, "old", "OLD", click.argument("new", metavar="NEW"), dry_run_option),
    actions,
)


def _until_over(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    job = coordinator.wait(job_id, timeout)
    click.echo(as_json(job) if as_json_ else job_text(job))
    if job.state != "succeeded":
        raise click.exceptions.Exit(1)
