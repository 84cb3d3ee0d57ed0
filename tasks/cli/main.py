"""The service's own commands of `coordinator`. `up` and `demo` import their modules only when they are called."""

import sys
import time
from pathlib import Path

import click

from coordinator import Job, UnknownJob
from coordinator.cli.format import as_json, table
from coordinator.cli.session import json_option
from tasks import requests
from tasks.app import coordinator
from tasks.catalog.sightings import Sightings
from tasks.cli.errors import one_line, unknown
from tasks.cli.members import members
from tasks.cli.nodelist import nodelist, still_lacking
from tasks.database import ForeignHost, NewerDatabase
from tasks.nodelist.protocol import WRITTEN
from tasks.nodelist.xml_file import NodelistUnreadable
from tasks.service import service

TAKEN_IN = 10.0  # seconds to wait until a node takes the request in
LOOK = 0.1


@click.command()
@click.option(
    "--nodelist",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Start with this node-list document.",
)
@click.option(
    "--nodes", metavar="N", default=2, show_default=True, type=click.IntRange(1), help="Number of coordinating nodes."
)
@click.option(
    "--concurrency", metavar="N", default=2, show_default=True, type=click.IntRange(1), help="Processes of each node."
)
@click.option("--beats", metavar="N", default=2, show_default=True, type=click.IntRange(0), help="Number of beats.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="The data directory  [TASKS_DATA_DIR].")
@click.option(
    "--flower-port", metavar="PORT", type=click.IntRange(1, 65535), help="Flower's port  [5555, or a free one]."
)
@click.option("--no-flower", is_flag=True, help="Run no Flower.")
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
    from tasks.local import machine as here

    flower = here.flower_port(flower_port, no_flower)
    here.run(here.Wanted(here.data_directory(data), nodes, concurrency, beats, flower), nodelist)


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="The data directory  [a temporary one].")
@click.option("--for", "seconds", metavar="SECONDS", type=click.FloatRange(min=1), help="End after so many seconds.")
@click.option(
    "--objects", default=1500, show_default=True, type=click.IntRange(1), help="About so many objects for each member."
)
@click.option(
    "--flower-port", metavar="PORT", type=click.IntRange(1, 65535), help="Flower's port  [5555, or a free one]."
)
@click.option("--no-flower", is_flag=True, help="Run no Flower.")
@one_line()
def demo(data: Path | None, seconds: float | None, objects: int, flower_port: int | None, no_flower: bool) -> None:
    """Show the service with three small members on this machine that keep changing, in one live table."""
    from tasks.local import demo as here
    from tasks.local.machine import flower_port as port

    if not here.run(data, port(flower_port, no_flower), objects, seconds):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("member")
@click.option("--pid", metavar="PID", help="Only this object.")
@click.option("--reason", help="The reason, kept with the request.")
@click.option("--wait", is_flag=True, help="Wait and show the progress; exit status 0 if it succeeds.")
@one_line()
def refresh(member: str, pid: str | None, reason: str | None, wait: bool) -> None:
    """Synchronize MEMBER now."""
    _refuse_what_nodes_would(member)
    job_id = requests.refresh(member, pid, reason)
    if not wait:
        click.echo(f"asked for {member}. To wait for it: coordinator wait {job_id}")
        if not coordinator.nodes():
            click.echo(f"no node is alive now: the request waits in the queue {requests.QUEUE}", err=True)
        return
    job = _watch(job_id)
    if job.state != "succeeded":
        raise click.ClickException(f"{member}: {job.state}: {(job.error or {}).get('message', 'no reason was kept')}")
    result = job.result or {}
    counts = ", ".join(
        f"{result[name]} {name}" for name in ("listed", "stored", "unchanged", "failed") if name in result
    )
    click.echo(f"{member}: {result.get('outcome', job.state)}: {result.get('reason') or counts}")
    if result.get("store", WRITTEN) not in (None, WRITTEN) and (why := still_lacking(member)):
        click.echo(f"the nodelist's permanent store lacks the new dates yet: {why}", err=True)


def _refuse_what_nodes_would(member: str) -> None:
    """Refuse at once, where the nodelist can be read. Otherwise the node that takes the request in decides."""
    try:
        listed = service().nodelist.listed().get(member)
    except (NodelistUnreadable, ForeignHost, NewerDatabase):
        return
    if listed is None:
        raise unknown(member)
    if obstacle := listed.member.obstacle if listed.approved else "it is not approved":
        raise click.ClickException(f"{member} cannot be synchronized: {obstacle}")


def _watch(job_id: str) -> Job:
    """Wait for the end of the job. Stderr shows its progress: a live line on a terminal, else a line per state."""
    live, told = sys.stderr.isatty(), ""
    deadline = time.monotonic() + TAKEN_IN
    while True:
        try:
            job = coordinator.job(job_id)
        except UnknownJob:
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"no node took the request within {TAKEN_IN:g} s. It still waits in the queue {requests.QUEUE} "
                    f"(is a node alive? coordinator nodes), or a node refused it ({requests.QUEUE}.dead says why)"
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


@click.command()
@click.argument("member")
@click.option("--failed", is_flag=True, help="Show the objects that could not be harvested, and why.")
@click.option("--gone", is_flag=True, help="Show the objects that the member has deleted.")
@click.option("--after", default="", metavar="PID", help="Show objects after this pid.")
@click.option(
    "--most", metavar="N", default=100, show_default=True, type=click.IntRange(1), help="Show at most so many."
)
@json_option
@one_line()
def catalog(member: str, failed: bool, gone: bool, after: str, most: int, as_json_: bool) -> None:
    """Show the objects harvested from a member that it still has."""
    here = service()
    summary = here.catalog.summary(member)
    if not (summary.objects or summary.gone) and member not in here.nodelist.listed():
        raise unknown(member)
    if failed and gone:
        raise click.UsageError("--failed and --gone show different objects: take one of them")
    heads: tuple[str, ...]
    if failed:
        rows = [failure._asdict() for failure in here.catalog.failed(member, limit=most)]
        heads = ("pid", "reason", "status", "tries", "failed_at", "next_try")
    elif gone:
        rows = [dict(row) for row in Sightings(here.catalog.engine).gone(member, after=after, limit=most)]
        heads = ("pid", "gone_since", "modified", "format_id", "size")
    else:
        rows = [dict(row) for row in here.catalog.objects(member, after=after, limit=most)]
        heads = ("pid", "modified", "format_id", "size", "algorithm", "checksum")
    names = [head.replace("_", " ") for head in heads]
    click.echo(as_json(rows) if as_json_ else table(names, ([row[head] for head in heads] for row in rows)))


coordinator.commands += [up, demo, refresh, members, catalog, nodelist]
