"""The service's own commands of `coordinator`. What runs and draws the service is imported where it is called."""

import sys
import time
from pathlib import Path

import click

from coordinator import Job, UnknownJob
from coordinator.session import json_option
from coordinator.tables import as_json, table
from tasks import adhoc
from tasks.app import coordinator
from tasks.memberscli import members
from tasks.nodelist import NodelistUnreadable
from tasks.nodelistcli import nodelist
from tasks.oneline import one_line, unknown
from tasks.schema import ForeignHost
from tasks.service import service
from tasks.sources import WRITTEN

TAKEN_IN = 10.0  # seconds until a request that nobody took in is given up on
LOOK = 0.1


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
    if result.get("store", WRITTEN) not in (None, WRITTEN):
        click.echo(f"the nodelist's permanent store lacks the dates yet: {result['store']}", err=True)


def _refuse_what_nodes_would(node: str) -> None:
    """Where the nodelist is at hand; elsewhere the node that takes the request in decides."""
    try:
        listed = service().nodelist.listed().get(node)
    except (NodelistUnreadable, ForeignHost):
        return
    if listed is None:
        raise unknown(node)
    if obstacle := listed.member.obstacle if listed.approved else "it is not approved":
        raise click.ClickException(f"{node} is not synchronized: {obstacle}")


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
    if not here.catalog.objects(member, limit=1) and member not in here.nodelist.listed():
        raise unknown(member)
    if failed:
        rows = [failure._asdict() for failure in here.catalog.failed(member, limit=most)]
        heads = ("pid", "reason", "status", "tries", "failed_at", "next_try")
    else:
        rows = [dict(row) for row in here.catalog.objects(member, after=after, limit=most)]
        heads = ("pid", "modified", "format_id", "size", "algorithm", "checksum")
    names = [head.replace("_", " ") for head in heads]
    click.echo(as_json(rows) if as_json_ else table(names, ([row[head] for head in heads] for row in rows)))


coordinator.commands += [up, demo, refresh, members, catalog, nodelist]
