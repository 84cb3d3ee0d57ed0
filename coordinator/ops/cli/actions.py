"""The commands `submit`, `wait`, `why` and `actions` (the audit trail: what operators did)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from shlex import quote
from typing import Literal

import click

from coordinator.coordinator import Coordinator
from coordinator.core.cursor import page_of
from coordinator.core.jobs.options import Units
from coordinator.core.jobs.request import UNKNOWN, WHEN_BUSY
from coordinator.core.jobs.submission import Submission
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.store.times import moment, span_text
from coordinator.core.store.values import Json
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.ops.cli.format import as_json, as_table, columns_of, fitted, print_list
from coordinator.ops.cli.options import option_of
from coordinator.ops.cli.session import Wrong, json_option, paged, session_of, with_app, with_coordinator
from coordinator.ops.cli.show import job_text
from coordinator.ops.diagnosis.summary import Summary
from coordinator.ops.readings import ACTED_SINCE, ACTED_UNTIL, BY, EXPLAINED, THING
from coordinator.ops.verbs.trail import Action
from coordinator.sorters.sorter import ARGUMENTS, KEYWORDS


@click.command()
@click.argument("names", metavar="[KEY] TASK", nargs=-1, required=True)
@option_of(ARGUMENTS)
@option_of(KEYWORDS)
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
    help="If no living node has the task: refuse the job, or let it wait for a node that has the task.",
)
@click.option(
    "--uses",
    multiple=True,
    metavar="NAME[=UNITS]",
    help="Use so many units of this quota, or all.",
)
@click.option("--instance", help="Grab this instance of KEY: its work is done once, and later submits of it lose.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the job is over. Exit status 0 when it succeeded.")
@click.option("--timeout", type=float, help="With --wait: seconds. After that the command ends, and the job goes on.")
@json_option
@with_coordinator
def submit(
    coordinator: Coordinator,
    names: tuple[str, ...],
    args: list[Json],
    kwargs: dict[str, Json],
    job_id: str | None,
    when_busy: Literal["queue", "skip", "defer", "replace"],
    uses: tuple[str, ...],
    instance: str | None,
    if_unknown: Literal["refuse", "wait"],
    waits: bool,
    timeout: float | None,
    as_json_: bool,
) -> None:
    """Put a job that runs TASK in the lane KEY. One that uses a quota may have no key: it stands in no lane."""
    if timeout is not None and not waits:
        raise click.UsageError("--timeout is for --wait")
    if len(names) > 2 or (len(names) == 1 and not uses):
        raise click.UsageError("name a KEY and a TASK; without a key, also a quota: --uses NAME")
    key, task = names if len(names) == 2 else (None, *names)
    signature = {"task": task, "args": args, "kwargs": kwargs, "options": {}}
    used = dict(map(_use, uses)) if uses else None
    submission = coordinator.submit(
        [] if key is None else key,
        signature,
        job_id=job_id,
        when_busy=when_busy,
        instance=instance,
        if_unknown=if_unknown,
        uses=used,
    )
    if waits and (submission.accepted or (submission.grab and submission.grab.state == "incomplete")):
        _until_over(coordinator, submission.id, timeout, as_json_)
        return
    if as_json_:
        click.echo(as_json(_as_dict(submission)))
    else:
        click.echo(_submitted(submission, key or "") + _why_in_front(coordinator, submission))
    if not submission.accepted:
        raise click.exceptions.Exit(1)


def _use(text: str) -> tuple[str, Units]:
    """Read one value of --uses: `api/acme` is one unit, `licence=2` two, `licence=all` all."""
    name, _, units = text.rpartition("=")
    if not name or not (units.isdecimal() or units == "all"):
        return text, 1
    return name, "all" if units == "all" else int(units)


def _as_dict(submission: Submission) -> dict[str, Json]:
    fields: dict[str, Json] = {"id": submission.id, "outcome": submission.outcome, "position": submission.position}
    if (grab := submission.grab) is None:
        return fields
    return fields | grab._asdict() | {"winner": grab.winner and dict(grab.winner._asdict())}


def _submitted(submission: Submission, key: str) -> str:
    """Return the outcome of a submit as a sentence for people."""
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
    """Return why a job did not start though it is in front: its lane is paused, or no living node can run the job."""
    if submission.outcome != "queued" or submission.position != 0:
        return ""
    try:
        return f": {coordinator.why(submission.id).causes[0].text}"
    except UnknownJob:
        return ""  # the job has ended already, and its record is gone


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--timeout", type=float, help="Seconds. After that the command ends, and the job goes on.")
@json_option
@with_coordinator
def wait(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    """Wait until a job is over, or held. Exit status 0 when it succeeded."""
    coordinator.job(job_id)  # fails at once if Redis is away, while `wait` would wait for Redis, too
    _until_over(coordinator, job_id, timeout, as_json_)


class _Why(click.Command):
    """The command `why`, with an option for each kind of thing that the app's extensions explain (`Extension.why`)."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        session = session_of(ctx.find_root())
        kinds = [kind for one in (session.coordinator.extensions if session.app else ()) for kind in one.why]
        more = [click.Option([f"--{kind}"], metavar="NAME", help=f"A {kind}.") for kind in kinds]
        return [*super().get_params(ctx), *more]


@click.command(cls=_Why)
@click.argument("job_id", metavar="[ID]", required=False)
@option_of(EXPLAINED[1])
@option_of(EXPLAINED[2])
@option_of(EXPLAINED[3])
@click.option("--summary", is_flag=True, help="How many jobs wait for each reason, and the longest wait.")
@json_option
@with_coordinator
def why(coordinator: Coordinator, /, job_id: str | None, summary: bool, as_json_: bool, **others: str) -> None:
    """Say why a job is where it is: what is wrong first, then each cause in the way, and what frees it.

    The page docs/why.md explains each code.
    """
    if summary:
        if job_id or any(others.values()):
            raise click.UsageError("--summary counts all jobs that wait: do not name a job or another thing")
        whole = coordinator.why_summary()
        click.echo(as_json(whole) if as_json_ else _summary_text(whole))
    elif not job_id and not any(others.values()):
        raise click.UsageError(
            "name a job by its ID, or another thing by an option such as --key; --summary counts all"
        )
    else:
        try:
            answer = coordinator.why(job_id, **others)
        except UnknownJob as error:
            if not job_id or not _has_lane(coordinator, job_id):
                raise
            ask = with_app(f"coordinator why --key {quote(job_id)}")
            raise Wrong(f"{error}; there is a lane of that key: {ask}") from error
        click.echo(as_json(answer) if as_json_ else fitted(with_app(str(answer))))


def _has_lane(coordinator: Coordinator, key: str) -> bool:
    with suppress(InvalidJob):
        lane = coordinator.lane(key, 1, 1)
        return bool(lane.jobs or lane.pause or lane.runs)
    return False


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


@click.command()
@paged(50)
@option_of(BY)
@option_of(THING)
@option_of(ACTED_SINCE)
@option_of(ACTED_UNTIL)
@json_option
@with_coordinator
def actions(coordinator: Coordinator, /, most: int, after: str, as_json_: bool, **filters: str | None) -> None:
    """List what operators did: who, when, on what and why, the newest first."""
    listed, after = page_of(coordinator.actions(most + 1, after, **filters), most, attrgetter("id"))
    columns: dict[str, Callable[[Action], object]] = {
        "when": lambda action: action.at,
        **columns_of("by", "act"),
        "thing": lambda action: shown_lane(action.thing),
        **columns_of("before", "after", "ticket", "why"),
    }
    print_list("actions", listed, columns, as_json_, after)


COMMANDS = (submit, wait, why, actions)


def _until_over(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    job = coordinator.wait(job_id, timeout)
    click.echo(as_json(job) if as_json_ else job_text(job))
    if job.state != "succeeded":
        raise click.exceptions.Exit(1)
