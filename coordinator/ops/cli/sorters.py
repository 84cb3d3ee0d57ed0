"""The command `coordinator sorters`: the sorters that hold orders."""

from __future__ import annotations

from operator import attrgetter

import click

from coordinator.coordinator import Coordinator
from coordinator.core.cursor import page_of
from coordinator.ops.cli.format import columns_of, print_list
from coordinator.ops.cli.session import json_option, paged, with_coordinator


@click.group(invoke_without_command=True)
@paged(1000)
@json_option
@with_coordinator
def sorters(coordinator: Coordinator, most: int, after: str, as_json_: bool) -> None:
    """List the sorters that hold orders; flush one, or add an order to it.

    The column DUE has the time at which the sorter puts its orders in line, unless more orders come.
    """
    behind = [sorter for sorter in coordinator.sorters() if sorter.name > after]
    listed, after = page_of(behind, most, attrgetter("name"))
    columns = columns_of(sorter="name") | columns_of("collected", "flushing", "first", "due")
    print_list("sorters", listed, columns, as_json_, after)
