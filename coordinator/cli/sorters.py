"""The commands of `coordinator sorters`: the sorters that hold orders, and acts on them."""

from __future__ import annotations

import click

from coordinator.cli.actions import arguments_option, command_of, kwargs_option
from coordinator.cli.format import listing, more, page, table
from coordinator.cli.session import json_option, paged, with_coordinator
from coordinator.client import acts
from coordinator.client.coordinator import Coordinator
from coordinator.sorters.sorter import ORDERS


@click.group(invoke_without_command=True)
@paged(1000)
@json_option
@with_coordinator
def sorters(coordinator: Coordinator, most: int, after: str, as_json_: bool) -> None:
    """List the sorters that hold orders; flush one, or add an order to it.

    DUE: when a sorter puts its orders in line, unless more come.
    """
    listed, after = page(coordinator.sorters(), lambda sorter: sorter.name, most, after)
    rows = ((sorter.name, sorter.collected, sorter.flushing, sorter.first, sorter.due) for sorter in listed)
    heads = ("sorter", "collected", "flushing", "first", "due")
    click.echo(listing("sorters", listed, after) if as_json_ else table(heads, rows))
    more(after)


ORDER = (
    *map(click.argument, ("order", "key", "task")),
    arguments_option,
    kwargs_option,
    click.option(
        "--idle-timeout", type=float, default=10.0, show_default=True, help="Flush after so many s without more."
    ),
    click.option("--max-wait", type=float, help="Flush at most so many seconds after the first order."),
    click.option(
        "--sorted", "sort", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True, help="By its id."
    ),
)
sorters.add_command(command_of(acts.flush, "name", "NAME"))
sorters.add_command(command_of(acts.add_order, "name", "NAME", *ORDER, name="add"))
