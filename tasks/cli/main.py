"""The service's own commands of `coordinator`: `up` and `demo` import their modules only when they are called."""

from pathlib import Path
from types import ModuleType

import click

from coordinator.cli.format import as_json, table
from coordinator.cli.session import json_option
from tasks.app import coordinator
from tasks.catalog.sightings import Sightings
from tasks.cli.components import components_command
from tasks.cli.errors import one_line, unknown
from tasks.cli.items import items_command
from tasks.cli.members import members
from tasks.cli.nodelist import nodelist
from tasks.cli.refresh import refresh
from tasks.pipeline import components
from tasks.service import service


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
@click.option("--batches", is_flag=True, help="Show a pipeline of scanned batches instead.")
@one_line()
def demo(
    data: Path | None, seconds: float | None, objects: int, flower_port: int | None, no_flower: bool, batches: bool
) -> None:
    """Show the service with three small members on this machine that keep changing, in one live table."""
    from tasks.local.machine import flower_port as port

    if batches:
        shown = _batches_demo().run(data, port(flower_port, no_flower), seconds)
    else:
        from tasks.local import demo as here

        shown = here.run(data, port(flower_port, no_flower), objects, seconds)
    if not shown:
        raise click.exceptions.Exit(1)


def _batches_demo() -> ModuleType:
    try:
        from tasks.local import batches_demo
    except ModuleNotFoundError as error:
        wanted = (error.name or "").partition(".")[0]
        if wanted == "examples":
            raise click.ClickException("the demo of batches runs from a checkout, which has its example") from error
        if wanted not in ("PIL", "jpylyzer"):
            raise
        raise click.ClickException("the demo needs more: pip install 'celery-coordinator[batches]'") from error
    return batches_demo


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
coordinator.commands += [items_command(components), components_command(components)]
