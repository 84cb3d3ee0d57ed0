"""`coordinator events`: shows the events of objects after a given number."""

import click

from coordinator.extending import columns_of, json_option, print_list
from tasks import events as own


@click.command()
@click.option("--after", metavar="N", type=click.IntRange(0), help="Show those behind this number  [the first kept].")
@click.option(
    "--most", metavar="N", default=100, show_default=True, type=click.IntRange(1), help="Show at most so many."
)
@json_option
def events(after: int | None, most: int, as_json_: bool) -> None:
    """Show what became of objects, in the order in which it was stored: new, changed, archived, gone."""
    last, rows = own.last(), own.after(after, most)
    following = str(rows[-1].number) if rows and rows[-1].number < last else ""
    columns = columns_of("number", "member", "pid", "kind", "at", "delivered")
    print_list("events", rows, columns, as_json_, following, last=last)
