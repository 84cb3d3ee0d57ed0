"""`coordinator items …`: the items, their events, and the repairs of an operator."""

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
    json_option,
    paged,
    print_list,
)
from tasks import whereabouts
from tasks.batches import Item, ItemConditions, ItemEvent, Items, Report
from tasks.batches.deliveries import Deliveries
from tasks.batches.items import newest
from tasks.components import look
from tasks.components.registry import Registry
from tasks.database import Value, identity, name_of
from tasks.instants import shown
from tasks.settings import Settings

F = TypeVar("F", bound=Callable[..., object])


def types(name: str, says: str) -> Callable[[F], F]:
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
    here: Registry = ctx.obj
    wanted = ItemConditions(asked["past"], asked["failed"], asked["future"], asked["old"], asked["type"])
    found = here.items.query(wanted, after or None, most)
    columns: dict[str, Callable[[Item], object]] = {
        "item": lambda item: item.id,
        **columns_of("type", "priority", "revision", "modified"),
        "events": lambda item: _marks(_worst_first(here.items.events(item.id))),
    }
    print_list("items", found.items, columns, as_json_, found.next, broken=found.broken)
    if found.broken and not as_json_:
        names = ", ".join(map(ascii, found.broken))
        click.echo(f"these rows cannot be read, and the log says why: {names}", err=True)


def items_command(here: Registry) -> click.Group:
    """The command, for the components of an app."""
    command = copy(items)
    command.context_settings = {"obj": here}
    return command


def _worst_first(events: list[ItemEvent]) -> list[ItemEvent]:
    """The newest event of each type: failures, then the newest."""
    latest = list(newest(events).values())[::-1]
    return [event for event in latest if not event.success] + [event for event in latest if event.success]


def _marks(events: list[ItemEvent]) -> str:
    return ", ".join(event.type if event.success else f"{event.type} FAILED" for event in events)


@items.command()
@click.argument("item", metavar="ID")
@click.option("--history", is_flag=True, help="With the events that a repair removed.")
@json_option
@click.pass_obj
def show(here: Registry, item: str, history: bool, as_json_: bool) -> None:
    """Show an item: its events and their reports, its round trips, and its orphaned results."""
    found, events = here.items.item(item), here.items.events(item, history=history)
    trips = [trip.id for trip in here.items.round_trips(found.batch) if trip.id != item]
    orphans, working = here.items.orphans(item), look.at_work(here, item)
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
def orphans(here: Registry, item: str | None, as_json_: bool) -> None:
    """Show finished work that had lost its item before it could store its event, the newest first."""
    lost = here.items.orphans(item)
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
def moved(here: Registry, **acting: Unpack[Acting]) -> None:
    """Note that the database has moved: the installation has from now on the one that the settings name.

    No node may live. The other database is as it is: move the tables yourself.
    """
    mine = Items(Settings.from_environment())
    name = name_of(mine.engine)
    before = whereabouts.move(here.coordinator, whereabouts.DATABASE, identity(mine.engine), name, **acting)
    click.echo(f"the database is {name}, before: {before}")


@items.command()
@click.argument("item", metavar="ID")
@click.option("--type", "kind", default="batch", show_default=True, help="The type of the item.")
@click.option("--directory", type=click.Path(file_okay=False, resolve_path=True), help="Where it lies, for all nodes.")
@click.option("--priority", type=click.IntRange(1, 9), help="1 goes first, 9 last, and none after 9.")
@click.pass_obj
def add(here: Registry, item: str, kind: str, directory: str | None, priority: int | None) -> None:
    """Register an item, so that components may work on it."""
    look.register(here, item, kind, directory, priority)
    click.echo(f"{item} is registered, a {kind}")


@items.command()
@click.argument("item", metavar="ID")
@click.option("--from", "kind", metavar="TYPE", help="Begin with this type of event  [the first failure].")
@click.option("--dry-run", is_flag=True, help="Only show the events that would be removed, and what starts then.")
@act_options
@click.pass_obj
def restart(here: Registry, item: str, kind: str | None, dry_run: bool, why: str, by: str, ticket: str) -> None:
    """Remove the first failure of an item and all that came from it: components do it again."""
    removed = look.restart(here, item, kind, dry_run=dry_run, by=by, why=why, ticket=ticket)
    for event in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {_marks([event])} of {shown(event.ended)}")
    click.echo(look.starts(here, item, removed))
    for event in look.repair(here, by).failures(item):
        if event not in removed:
            click.echo(f"{_marks([event])} of {shown(event.ended)} stays: it did not come from there", err=True)


@items.command()
@click.argument("item", metavar="ID")
@click.argument("kind", metavar="TYPE")
@act_options
@click.pass_obj
def remove(here: Registry, item: str, kind: str, why: str, by: str, ticket: str) -> None:
    """Remove the events of one type; the history keeps them."""
    for event in look.remove(here, item, kind, by=by, why=why, ticket=ticket):
        click.echo(f"removed {_marks([event])} of {shown(event.ended)}")


@items.command()
@click.argument("item", metavar="ID")
@click.argument("kind", metavar="TYPE")
@click.option("--failed", is_flag=True, help="The event is a failure.")
@act_options
@click.pass_obj
def append(here: Registry, item: str, kind: str, failed: bool, why: str, by: str, ticket: str) -> None:
    """Append an event by hand."""
    look.append(here, item, kind, success=not failed, by=by, why=why, ticket=ticket)
    click.echo(f"{item} has {kind}{' FAILED' if failed else ''}")


@items.command()
@click.argument("item", metavar="ID")
@act_options
@click.pass_obj
def stop(here: Registry, item: str, why: str, by: str, ticket: str) -> None:
    """Stop an item for every component: nothing begins work on it, and what waits is cancelled."""
    cancelled = look.stop(here, item, by=by, why=why, ticket=ticket)
    click.echo(f"{item} is stopped; {cancelled} waiting jobs were cancelled")
    if working := look.at_work(here, item):
        click.echo(f"{working}: that goes on to its end", err=True)


@items.command()
@click.argument("item", metavar="ID")
@click.argument("priority", type=click.IntRange(1, 9), required=False)
@act_options
@click.pass_obj
def prioritise(here: Registry, item: str, priority: int | None, why: str, by: str, ticket: str) -> None:
    """Give an item a priority, 1 to 9, or none; its waiting jobs move, too."""
    moved = look.prioritise(here, item, priority, by=by, why=why, ticket=ticket)
    click.echo(f"{item} has {f'priority {priority}' if priority else 'no priority'}; {moved} waiting jobs were moved")


@items.command()
@click.argument("batch")
@act_options
@click.pass_obj
def approve(here: Registry, batch: str, why: str, by: str, ticket: str) -> None:
    """Approve the highest round trip of BATCH that is flagged."""
    for item, outcome in look.approve(here, batch, by=by, why=why, ticket=ticket).items():
        click.echo(f"{item} {outcome}")


@items.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--type", "kind", default="batch", show_default=True, help="The type of the items.")
@click.option("--poll", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Seconds to each look.")
@click.pass_obj
def watch(here: Registry, directory: Path, kind: str, poll: float) -> None:
    """Take in deliveries, until Ctrl-C: directories <batch>-RT<n> that hold the file transfer_acknowledged."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    Deliveries(here.items, directory, kind).watch(poll, stop)
