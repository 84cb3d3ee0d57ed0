"""The service's own commands of `coordinator`: `up` imports its modules only when it is called."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator import Extension
from coordinator.cli.format import as_json, table
from coordinator.cli.session import json_option
from tasks.app import coordinator, documents
from tasks.catalog.sightings import Sightings
from tasks.cli.errors import one_line
from tasks.cli.extension import batches
from tasks.cli.members import members
from tasks.cli.nodelist import nodelist
from tasks.cli.refresh import refresh
from tasks.cli.web import web
from tasks.members import UnknownMember, why
from tasks.pipeline import components
from tasks.service import service

if TYPE_CHECKING:
    from coordinator.dashboard.extend import Pages


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
    here.run(here.Processes(here.data_directory(data), nodes, concurrency, beats, flower), nodelist)


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
        raise UnknownMember(member)
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


def _pages() -> "Pages":
    from tasks.pages import members as made  # commands need no page

    return made.pages()


def _members_app() -> object:
    from tasks.web import Callers, MembersApp  # commands need no server

    return MembersApp(Callers())


coordinator.extend(
    Extension(
        "service",
        commands=(up, refresh, members, catalog, nodelist, web),
        why={"member": why},
        findings=documents.findings,
        metrics=documents.metrics,
        pages=_pages,
        mounts={"/cn": _members_app},
    )
)
coordinator.extend(batches(components))
