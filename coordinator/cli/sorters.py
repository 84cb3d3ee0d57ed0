"""The commands of `coordinator sorters`: the sorters that hold orders, and acts on them."""

from __future__ import annotations

from typing import Unpack

import click

from coordinator.author import Acting
from coordinator.cli.actions import Shown, acts, arguments_option, kwargs_option
from coordinator.cli.format import listing, more, page, table
from coordinator.cli.session import json_option, paged, with_coordinator
from coordinator.client.coordinator import Coordinator
from coordinator.jobs.states import Sorted
from coordinator.sorters.sorter import ORDERS
from coordinator.store.values import Json


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


@acts("name", "NAME")
def flush(coordinator: Coordinator, name: str, **acting: Unpack[Acting]) -> Shown:
    """Put the orders of a sorter in line now."""
    count = coordinator.sorter(name).flush(**acting)
    said = f"{count} order{'' if count == 1 else 's'} of {name} put in line" if count else f"{name} holds no orders"
    return {"sorter": name, "orders": count}, said


@acts("name", "NAME")
@click.argument("order")
@click.argument("key")
@click.argument("task")
@arguments_option
@kwargs_option
@click.option("--idle-timeout", type=float, default=10.0, show_default=True, help="Flush after so many s without more.")
@click.option("--max-wait", type=float, help="Flush at most so many seconds after the first order.")
@click.option("--sorted", "sort", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True, help="By its id.")
def add(
    coordinator: Coordinator,
    name: str,
    order: str,
    key: str,
    task: str,
    arguments: list[Json],
    kwargs: dict[str, Json],
    idle_timeout: float,
    max_wait: float | None,
    sort: Sorted,
    **acting: Unpack[Acting],
) -> Shown:
    """Add the order ORDER, a job that runs TASK in the lane KEY, to a sorter."""
    signature = {"task": task, "args": arguments, "kwargs": kwargs, "options": {}}
    added = coordinator.sorter(name, idle_timeout, max_wait, sort).add(order, key, signature, **acting)
    return {"sorter": name, "id": added.id, "outcome": added.outcome}, f"{added.id} is held by the sorter {name}"


for command in (flush, add):
    sorters.add_command(command)
