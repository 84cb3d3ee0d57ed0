"""The commands of `coordinator sorters`: the sorters that hold orders, and acts on them."""

from __future__ import annotations

from operator import attrgetter

import click

from coordinator.cli.actions import arguments_option, command_of, kwargs_option
from coordinator.cli.format import columns_of, print_list
from coordinator.cli.session import json_option, paged, with_coordinator
from coordinator.client import acts
from coordinator.client.coordinator import Coordinator
from coordinator.cursor import page_of
from coordinator.sorters.sorter import ORDERS


@click.group(invoke_without_command=True)
@paged(1000)
@json_option
@with_coordinator
def sorters(coordinator: Coordinator, most: int, after: str, as_json_: bool) -> None:
    """List the sorters that hold orders; flush one, or add an order to it.

    DUE: when a sorter puts its orders in line, unless more come.
    """
    behind = [sorter for sorter in coordinator.sorters() if sorter.name > after]
    listed, after = page_of(behind, most, attrgetter("name"))
    columns = columns_of(sorter="name") | columns_of("collected", "flushing", "first", "due")
    print_list("sorters", listed, columns, as_json_, after)


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
