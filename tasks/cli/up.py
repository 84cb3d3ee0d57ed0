"""`coordinator up`: runs all processes of the service on this machine."""

from pathlib import Path

import click

from tasks.local import machine as here


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
    flower = here.flower_port(flower_port, no_flower)
    here.run(here.Processes(here.data_directory(data), nodes, concurrency, beats, flower), nodelist)
