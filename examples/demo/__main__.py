"""`python -m examples.demo`, from a checkout: what `make run` runs."""

from pathlib import Path
from types import ModuleType

import click

from coordinator import CoordinatorError
from tasks.errors import plain
from tasks.local.machine import flower_port as port


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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
def demo(
    data: Path | None, seconds: float | None, objects: int, flower_port: int | None, no_flower: bool, batches: bool
) -> None:
    """Show the service with three small members on this machine that keep changing, in one live table."""
    try:
        if batches:
            arrived = _batches().run(data, port(flower_port, no_flower), seconds)
        else:
            from examples.demo import federation  # tasks.app reads the environment

            arrived = federation.run(data, port(flower_port, no_flower), objects, seconds)
    except Exception as error:
        said = plain(error) or error
        if not isinstance(said, CoordinatorError | ConnectionError):
            raise
        raise click.ClickException(str(said)) from error
    if not arrived:
        raise click.exceptions.Exit(1)


def _batches() -> ModuleType:
    try:
        from examples.demo import batches
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("PIL", "jpylyzer"):
            raise
        raise click.ClickException("the demo needs more: pip install 'celery-coordinator[batches]'") from error
    return batches


if __name__ == "__main__":
    demo(prog_name="python -m examples.demo")
