"""The command `coordinator event`: the events for which jobs wait, and those that are set."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from coordinator.coordinator import Coordinator
from coordinator.ops.cli.format import as_json, as_pairs, as_table, as_text, print_list
from coordinator.ops.cli.group import ShowByName
from coordinator.ops.cli.options import option_of
from coordinator.ops.cli.session import json_option, paged, with_coordinator
from coordinator.ops.readings import EVENTS
from coordinator.ops.search.events import EventRecord, EventStatus

_MOST = click.option("--most", type=click.IntRange(1), default=50, show_default=True, help="At most so many waiters.")


@click.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND]")
@option_of(EVENTS)
@paged(50)
@json_option
@with_coordinator
def event(coordinator: Coordinator, prefix: str, most: int, after: str, as_json_: bool) -> None:
    """List the events for which jobs wait, and then those that are set, the latest first; set one.

    NAME: this one, with the jobs that wait for it.
    """
    found = coordinator.events(prefix, most, after)
    columns: dict[str, Callable[[EventRecord], object]] = {
        "event": lambda one: one.name,
        "waiting": lambda one: one.waiting or None,
        "set": lambda one: one.at,
        "by": lambda one: one.by,
        "why": lambda one: one.why or None,
        "value": lambda one: None if one.at is None else json.dumps(one.value, ensure_ascii=False)[:60],
    }
    print_list("events", found.events, columns, as_json_, found.after)


@event.command("show")
@click.argument("name")
@_MOST
@json_option
@with_coordinator
def show_event(coordinator: Coordinator, name: str, most: int, as_json_: bool) -> None:
    """Show an event: its value, who set it and when, and the jobs that wait for it."""
    status = coordinator.event_status(name, most)
    click.echo(as_json(status) if as_json_ else event_text(status))


def event_text(status: EventStatus) -> str:
    """Write an event, and the jobs that wait for it."""
    one = status.event
    values = [
        ("event", one.name),
        ("set", as_text(one.at) if one.at else "no"),
        ("value", None if one.at is None else json.dumps(one.value, ensure_ascii=False)),
        ("by", one.by),
        ("why", one.why or None),
        ("kept until", one.until),
        ("waiting", as_text(one.waiting)),
    ]
    rows = [(waiter.job_id, waiter.state, waiter.task, waiter.until) for waiter in status.waiters]
    table = "waits for it\n" + as_table(("id", "state", "task", "until"), rows)
    return "\n\n".join([as_pairs(values), *([table] if rows else [])])
