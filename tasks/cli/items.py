"""`coordinator items …`: shows and adds items, shows their events, repairs them, and watches for deliveries."""

import signal
import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import TypeVar, Unpack

import click

from coordinator.extending import (
    Acting,
    act_options,
    as_json,
    as_pairs,
    as_text,
    columns_of,
    commands_of,
    json_option,
    paged,
    print_list,
)
from tasks import whereabouts
from tasks.batches import Item, ItemConditions, ItemEvent, Items, Report
from tasks.batches.deliveries import Deliveries
from tasks.batches.items import newest
from tasks.components import look, readings
from tasks.components.registry import Registry
from tasks.database import Value, identity, name_of
from tasks.instants import shown
from tasks.settings import Settings

F = TypeVar("F", bound=Callable[..., object])


def types(name: str, says: str) -> Callable[[F], F]:
    """Return a decorator that adds the repeatable option `--<name> TYPE` to a command. `says`: the option's help."""
    return click.option(f"--{name}", multiple=True, metavar="TYPE", help=says)


@click.group(invoke_without_command=True)
@types("past", "Items whose newest event of this type is a success.")
@types("failed", "Items whose newest event of this type is a failure.")
@types("future", "Items without an event of this type.")
@types("old", "Items without an event of this type, or with one from before their last change.")
@types("type", "Items of this type.")
@paged(100)
@json_option
@click.pass_context  # type: ignore[arg-type]
def items(ctx: click.Context, after: str, most: int, as_json_: bool, **asked: tuple[str, ...]) -> None:
    """Show items by what has happened to them, by priority, then age."""
    if ctx.invoked_subcommand:
        return
    registry: Registry = ctx.obj
    wanted = ItemConditions(asked["past"], asked["failed"], asked["future"], asked["old"], asked["type"])
    found = registry.items.query(wanted, after or None, most)
    columns: dict[str, Callable[[Item], object]] = {
        "item": lambda item: item.id,
        **columns_of("type", "priority", "revision", "modified"),
        "events": lambda item: _marks(_worst_first(registry.items.events(item.id))),
    }
    print_list("items", found.items, columns, as_json_, found.next, broken=found.broken)
    if found.broken and not as_json_:
        names = ", ".join(map(ascii, found.broken))
        click.echo(f"these rows cannot be read, and the log says why: {names}", err=True)


def items_command(registry: Registry) -> click.Group:
    """Build the command group `items`, with the verbs on items, for the components in `registry`."""
    command = copy(items)
    command.context_settings = {"obj": registry}
    command.commands = dict(items.commands)
    for act in commands_of(readings.bound_verbs(registry), "items"):
        command.add_command(act)
    return command


def _worst_first(events: list[ItemEvent]) -> list[ItemEvent]:
    """Return the newest event of each type: first the failures, then the successes, each with the newest first."""
    latest = list(newest(events).values())[::-1]
    return [event for event in latest if not event.success] + [event for event in latest if event.success]


def _marks(events: list[ItemEvent]) -> str:
    return ", ".join(event.type if event.success else f"{event.type} FAILED" for event in events)


@items.command()
@click.argument("item", metavar="ID")
@click.option("--history", is_flag=True, help="With the events that a repair removed.")
@json_option
@click.pass_obj
def show(registry: Registry, item: str, history: bool, as_json_: bool) -> None:
    """Show an item: its events and their reports, the other round trips of its batch, and its orphaned results."""
    found, events = registry.items.item(item), registry.items.events(item, history=history)
    trips = [trip.id for trip in registry.items.round_trips(found.batch) if trip.id != item]
    orphans, working = registry.items.orphans(item), look.at_work(registry, item)
    if as_json_:
        whole = asdict(found) | {"events": events, "round_trips": trips, "orphans": orphans, "working": working}
        click.echo(as_json(whole))
        return
    click.echo(as_pairs([*asdict(found).items(), ("other round trips", trips), ("now", working)]))
    for event in events:
        click.echo()
        _show_event(event)
    for orphan in orphans:
        click.echo()
        _show_orphan(orphan)


@items.command()
@click.argument("item", metavar="[ID]", required=False)
@json_option
@click.pass_obj
def orphans(registry: Registry, item: str | None, as_json_: bool) -> None:
    """Show finished work that could not be stored, since another job or a repair had the item; the newest first."""
    lost = registry.items.orphans(item)
    if as_json_:
        return print_list("orphans", lost, {}, as_json_)
    for orphan in lost:
        click.echo(f"{orphan['item']!s}: ", nl=False)
        _show_orphan(orphan)


def _show_orphan(orphan: Mapping[str, Value]) -> None:
    outcome = "succeeded" if orphan["success"] else "FAILED"
    agent, report = f"{orphan['component']!s}-{orphan['version']!s}", Report.from_json(str(orphan["report"]))
    click.echo(f"{orphan['type']!s} {outcome} at {as_text(orphan['ended'])} by {agent}, orphaned: it had lost the item")
    _show_report(report)


def _show_event(event: ItemEvent) -> None:
    outcome = "succeeded" if event.success else "FAILED"
    click.echo(f"{event.type} {outcome} at {shown(event.ended)} by {event.agent}")
    if event.started != event.ended:
        click.echo(f"  began at {shown(event.started)}{event.report.node and f' on {event.report.node}'}")
    if event.removed:
        click.echo(f"  removed at {shown(event.removed)} by {event.removed_by}: {event.removed_why or 'no reason'}")
    _show_report(event.report)


def _show_report(report: Report) -> None:
    if report.text:
        click.echo(f"  {report.text}")
    for failure in report.failures:
        where = f"{failure.type} {failure.file}".rstrip()
        click.echo(f"  {where}: {failure.description} ({failure.component})")
        if failure.details:
            click.echo(indent(failure.details.rstrip(), "    "))
    if report.found > len(report.failures):
        click.echo(f"  and {report.found - len(report.failures)} more failures")


@items.command()
@act_options
@click.pass_obj
def moved(registry: Registry, **acting: Unpack[Acting]) -> None:
    """Tell the installation that its database has moved to the one that the settings name.

    All nodes and beats must have ended. The command copies nothing: move the tables yourself.
    """
    mine = Items(Settings.from_environment())
    name = name_of(mine.engine)
    before = whereabouts.move(registry.coordinator, whereabouts.DATABASE, identity(mine.engine), name, **acting)
    click.echo(f"the database is {name}, before: {before}")


@items.command()
@click.argument("item", metavar="ID")
@click.option("--type", "kind", default="batch", show_default=True, help="The type of the item.")
@click.option("--directory", type=click.Path(file_okay=False, resolve_path=True), help="Where it lies, for all nodes.")
@click.option("--priority", type=click.IntRange(1, 9), help="1 goes first, 9 last, and none after 9.")
@click.pass_obj
def add(registry: Registry, item: str, kind: str, directory: str | None, priority: int | None) -> None:
    """Add an item, so that components may work on it."""
    look.register(registry, item, kind, directory, priority)
    click.echo(f"{item} is registered, a {kind}")


@items.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--type", "kind", default="batch", show_default=True, help="The type of the items.")
@click.option("--poll", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Seconds to each look.")
@click.pass_obj
def watch(registry: Registry, directory: Path, kind: str, poll: float) -> None:
    """Store the deliveries that arrive in DIRECTORY, until Ctrl-C.

    A delivery is a directory <batch>-RT<n> that has the file transfer_acknowledged.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    Deliveries(registry.items, directory, kind).watch(poll, stop)
