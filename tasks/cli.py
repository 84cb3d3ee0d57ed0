"""The service's own commands of `coordinator`. What runs and draws the service is imported where it is called."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import click
from kombu.exceptions import OperationalError
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from coordinator import Job, UnknownJob
from coordinator.entries import next_tick
from coordinator.tables import as_json, moment, table
from tasks import adhoc, checks, documents, instants
from tasks.app import coordinator
from tasks.catalog import Catalog
from tasks.member import Member
from tasks.members import lane_of
from tasks.nodelist import NodelistUnreadable, parse_nodelist
from tasks.schema import ForeignHost
from tasks.service import service

TAKEN_IN = 10.0  # seconds until a request that nobody took in is given up on
LOOK = 0.1

json_option = click.option("--json", "as_json_", is_flag=True, help="For programs.")


@contextmanager
def one_line() -> Iterator[None]:
    """What an operator can mend is told in one line."""
    try:
        yield
    except NodelistUnreadable as error:
        raise click.ClickException(f"{error}: give one with coordinator nodelist import FILE") from error
    except OperationalError as error:
        raise click.ClickException(f"the broker: {error}. Is it running? CELERY_BROKER_URL names it") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise click.ClickException(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"the catalog: {str(error).splitlines()[0]}") from error
    except (ForeignHost, documents.Unreadable, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.option("--nodelist", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Take this one over.")
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(1), help="Coordinating nodes.")
@click.option("--concurrency", default=2, show_default=True, type=click.IntRange(1), help="Processes of each node.")
@click.option("--beats", default=2, show_default=True, type=click.IntRange(0))
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where all is kept  [TASKS_DATA_DIR].")
@click.option("--flower-port", type=click.IntRange(1, 65535), help="On loopback  [5555, or another that is free].")
@click.option("--no-flower", is_flag=True)
@one_line()
def up(
    nodelist: Path | None,
    nodes: int,
    concurrency: int,
    beats: int,
    data: Path | None,
    flower_port: int | None,
    no_flower: bool,
) -> None:
    """Run the service on this machine until Ctrl-C: Redis (unless COORDINATOR_URL is set), nodes, beats, Flower."""
    from tasks import up as here

    flower = here.flower_port(flower_port, no_flower)
    here.run(here.Wanted(here.data_directory(data), nodes, concurrency, beats, flower), nodelist)


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where all is kept  [thrown away].")
@click.option("--for", "seconds", type=click.FloatRange(min=1), help="End after so many seconds, with a summary.")
@click.option("--objects", default=1500, show_default=True, type=click.IntRange(1), help="About so many a member.")
@click.option("--flower-port", type=click.IntRange(1, 65535), help="On loopback  [5555, or another that is free].")
@click.option("--no-flower", is_flag=True)
@one_line()
def demo(data: Path | None, seconds: float | None, objects: int, flower_port: int | None, no_flower: bool) -> None:
    """The service with three small member nodes on this machine that keep changing, and one live table."""
    from tasks import demo as here
    from tasks.up import flower_port as port

    if not here.run(data, port(flower_port, no_flower), objects, seconds):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("node")
@click.option("--pid", help="Just this object.")
@click.option("--reason", help="Kept with the request.")
@click.option("--wait", is_flag=True, help="Show its progress; exit status 0 when it succeeded.")
@one_line()
def refresh(node: str, pid: str | None, reason: str | None, wait: bool) -> None:
    """Ask for the synchronization of the member NODE now."""
    _refuse_what_nodes_would(node)
    job_id = adhoc.refresh(node, pid, reason)
    if not wait:
        click.echo(f"asked for {node}; to wait for it: coordinator wait {job_id}")
        return
    job = _watch(job_id)
    if job.state != "succeeded":
        raise click.ClickException(f"{node}: {job.state}: {(job.error or {}).get('message', 'no reason was kept')}")
    result = job.result or {}
    counts = ", ".join(
        f"{result[name]} {name}" for name in ("listed", "stored", "unchanged", "failed") if name in result
    )
    click.echo(f"{node}: {result.get('outcome', job.state)}: {result.get('reason') or counts}")


def _refuse_what_nodes_would(node: str) -> None:
    """Where the nodelist is at hand; elsewhere the node that takes the request in decides."""
    try:
        member = service().nodelist.member(node)
    except (NodelistUnreadable, ForeignHost):
        return
    if member is None:
        raise click.ClickException(f"unknown member {node}: coordinator nodelist show lists those there are")
    if member.obstacle:
        raise click.ClickException(f"{node} is not synchronized: {member.obstacle}")


def _watch(job_id: str) -> Job:
    """The job once it is over; its way there on stderr, one line that changes, or one for each state."""
    live, told = sys.stderr.isatty(), ""
    deadline = time.monotonic() + TAKEN_IN
    while True:
        try:
            job = coordinator.job(job_id)
        except UnknownJob:
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"no node took the request in within {TAKEN_IN:g} s. It waits in {adhoc.QUEUE} until one does "
                    f"(coordinator nodes), or was refused ({adhoc.QUEUE}.dead says why)"
                ) from None
            time.sleep(LOOK)
            continue
        done, total = job.progress or (0, 0)
        line = f"{job.state} {done}/{total}" if live and job.progress else job.state
        line += f" on {job.node}" if job.node else ""
        if line != told:
            click.echo(f"\r\x1b[K{line}" if live else line, err=True, nl=not live or job.over)
            told = line
        if job.over:
            return job
        time.sleep(LOOK)


@dataclass(frozen=True)
class Condition:
    """Of one member; `failures`: how many objects failed for which reason."""

    member: str
    state: str
    last_harvested: datetime | None
    objects: int
    failed: int
    failures: dict[str, int]
    next_tick: datetime | None
    last_run: datetime | None
    outcome: str | None
    error: str | None


def _condition(member: Member, catalog: Catalog) -> Condition:
    summary = catalog.summary(member.identifier)
    lane = coordinator.lane(lane_of(member.identifier), 1)
    reasons = Counter(failure.reason for failure in catalog.failed(member.identifier, limit=1000))
    return Condition(
        member=member.identifier,
        state=(member.obstacle or "idle") if lane.state == "empty" else lane.state,
        last_harvested=None if member.harvested_until <= instants.NEVER else member.last_harvested,
        objects=summary.objects,
        failed=summary.failed,
        failures=dict(reasons.most_common()),
        next_tick=next_tick(coordinator.store, lane_of(member.identifier)) if member.synchronizable else None,
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
    found = [_condition(member, here.catalog) for member in here.nodelist.members()]
    if as_json_:
        click.echo(as_json([asdict(one) for one in found]))
        return
    heads = ("member", "state", "last harvested", "objects", "failed", "next tick", "last run", "what was wrong")
    fields = ("member", "state", "last_harvested", "objects", "failed", "next_tick")
    rows = ([*(getattr(one, name) for name in fields), _last_run(one), one.error or _reasons(one)] for one in found)
    click.echo(table(heads, rows))


def _last_run(one: Condition) -> str | None:
    return f"{moment(one.last_run)} {one.outcome}" if one.last_run else None


def _reasons(one: Condition) -> str:
    return "; ".join(f"{count} × {reason}" for reason, count in list(one.failures.items())[:3])


@members.command()
@click.argument("url")
@one_line()
def check(url: str) -> None:
    """Look whether a member at the base URL can be synchronized: its description, listing, metadata and schedule."""
    fine = True
    for found in checks.look(url, service().settings):
        fine &= found.fine
        click.echo(f"{'ok' if found.fine else 'NO':3} {found.what}: {found.says}")
    if not fine:
        raise click.exceptions.Exit(1)


@members.command()
@click.argument("member", metavar="ID")
@one_line()
def reset(member: str) -> None:
    """Forget until when a member was harvested: its next synchronization begins at its beginning."""
    try:
        service().nodelist.reset(member)
    except KeyError:
        raise click.ClickException(f"unknown member {member}: coordinator members lists those there are") from None
    click.echo(f"{member} will be harvested from its beginning")


@click.command()
@click.argument("member", metavar="ID")
@click.option("--failed", is_flag=True, help="Objects that could not be harvested, and why.")
@click.option("--after", default="", metavar="PID", help="Those after this one.")
@click.option("--most", default=100, show_default=True, type=click.IntRange(1))
@json_option
@one_line()
def catalog(member: str, failed: bool, after: str, most: int, as_json_: bool) -> None:
    """What was harvested from a member."""
    here = service()
    if not here.catalog.objects(member, limit=1) and here.nodelist.member(member) is None:
        raise click.ClickException(f"unknown member {member}: coordinator members lists those there are")
    if failed:
        rows = [failure._asdict() for failure in here.catalog.failed(member, limit=most)]
        heads = ("pid", "reason", "status", "tries", "failed_at", "next_try")
    else:
        rows = [dict(row) for row in here.catalog.objects(member, after=after, limit=most)]
        heads = ("pid", "modified", "format_id", "size", "algorithm", "checksum")
    names = [head.replace("_", " ") for head in heads]
    click.echo(as_json(rows) if as_json_ else table(names, ([row[head] for head in heads] for row in rows)))


@click.group()
def nodelist() -> None:
    """The list of members."""


@nodelist.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@one_line()
def import_(file: Path) -> None:
    """Replace the list by a DataONE node-list document; dates that it does not name stay."""
    parsed = parse_nodelist(file.read_bytes())
    service().nodelist.import_file(file)
    for problem in parsed.problems:
        click.echo(f"left out: {problem}", err=True)
    able = sum(member.synchronizable for member in parsed.members)
    click.echo(f"{len(parsed.members)} members, {able} of them to be synchronized")


@nodelist.command()
@json_option
@one_line()
def show(as_json_: bool) -> None:
    """The members of the list, as it is now."""
    found = service().nodelist.members()
    rows = ((one.identifier, one.name, one.base_url, _schedule(one), one.obstacle or "yes") for one in found)
    heads = ("member", "name", "base url", "schedule", "synchronized")
    click.echo(as_json([one.model_dump(mode="json") for one in found]) if as_json_ else table(heads, rows))


def _schedule(member: Member) -> str | None:
    return " ".join(member.schedule.parts) if member.schedule else None


coordinator.commands += [up, demo, refresh, members, catalog, nodelist]
