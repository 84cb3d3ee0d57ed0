"""The commands of `coordinator schedule`: the entries that beats know, and what became of their ticks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter

import click

from coordinator.coordinator import Coordinator
from coordinator.core.cursor import page_of
from coordinator.core.store.times import moment
from coordinator.ops.cli.format import as_json, as_pairs, as_table, print_list
from coordinator.ops.cli.group import ShowByName
from coordinator.ops.cli.session import json_option, paged, with_coordinator
from coordinator.ops.cli.show import act_text
from coordinator.ops.diagnosis.entries import broken
from coordinator.scheduler.backfill import Backfill
from coordinator.scheduler.entry_plan import number
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.steering import EntryStatus


@click.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND]")
@paged(1000)
@click.option("--prefix", default="", help="Only entries whose names begin so.")
@json_option
@with_coordinator
def schedule(coordinator: Coordinator, most: int, after: str, prefix: str, as_json_: bool) -> None:
    """List the entries of the schedule; show or steer one of them.

    NAME: show this entry, its next instants and what became of the last ones.
    """
    living = coordinator.nodes()
    entries, after = page_of(coordinator.entries.all(prefix, most + 1, after), most, attrgetter("name"))
    columns: dict[str, Callable[[EntryStatus], object]] = {
        "entry": lambda entry: entry.name,
        "when": lambda entry: entry.when,
        "next": lambda entry: "paused" if entry.paused else entry.next,
        "last run": _ran,
        "broken": lambda entry: broken(entry, living),
        "starts": lambda entry: entry.task,
        "lane": lambda entry: entry.key,
        "steered": _steered,
    }
    print_list("entries", entries, columns, as_json_, after, _entry)


@schedule.command("show")
@click.argument("name")
@json_option
@with_coordinator
def show_entry(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """Show an entry: its next instants, and what became of the last ones."""
    entry, past = coordinator.entries.entry(name), coordinator.entries.history(name)
    if as_json_:
        click.echo(as_json({**_entry(entry), "history": [asdict(happening) for happening in past]}))
        return
    click.echo(_shown(entry, broken(entry, coordinator.nodes())))
    click.echo()
    heads = ("instant", "what", "late", "beat", "job ended", "by")
    click.echo(as_table(heads, (_row(happening) for happening in past)) if past else "no tick was sent yet")


def _entry(entry: EntryStatus) -> dict[str, object]:
    return {**asdict(entry), "next": entry.next}


def _ran(entry: EntryStatus) -> str | None:
    return f"{entry.state or entry.ran.word} {moment(entry.ran.at)}" if entry.ran else None


def _shown(entry: EntryStatus, wrong: str) -> str:
    omitted = f"{moment(entry.omitted)}, {act_text(entry.omitted_by)}" if entry.omitted else None
    return as_pairs(
        [
            ("entry", entry.name),
            ("when", entry.when),
            ("broken", wrong),
            ("changed", act_text(entry.changed)),
            ("paused", act_text(entry.paused)),
            ("omitted", omitted),
            ("last run", _ran(entry)),
            ("starts", entry.task),
            ("lane", entry.key),
            ("when busy", entry.when_busy if entry.key else None),
            ("misfire", entry.misfire if entry.misfire != "once" else None),
            ("source", entry.source),
            *_backfill(entry.backfill),
            *((_label(entry, at, place), moment(at)) for place, at in enumerate(entry.upcoming)),
        ]
    )


def _backfill(backfill: Backfill | None) -> list[tuple[str, str]]:
    if backfill is None:
        return []
    lines = [("backfill", f"{moment(backfill.since)} to {moment(backfill.until)}: {backfill}")]
    if backfill.stopped:
        lines.append(("stopped", act_text(backfill.stopped) or ""))
    if backfill.error:
        lines.append(("stopped", backfill.error))
    return [*lines, *(("failed", job_id) for job_id in backfill.failed_ids)]


def _label(entry: EntryStatus, at: datetime, place: int) -> str:
    if entry.paused:
        return "paused"
    return "omitted" if at == entry.omitted else "next" if place == 0 else "then"


def _row(happening: EntryEvent) -> tuple[object, ...]:
    what = happening.word if happening.kind != "run" else f"run now: {happening.word}"
    what += f": {happening.error}" if happening.error else ""
    if happening.missed:
        what += (
            f" ({number(happening.missed)} missed)" if happening.word != "missed" else f" ({number(happening.missed)})"
        )
    ended = f"{happening.state} {moment(happening.ended)}" if happening.state else None
    by = f"{happening.by}: {happening.why}" if happening.why else happening.by
    late = f"{happening.late:.1f} s" if happening.kind == "tick" and happening.beat else None
    return happening.at, what, late, happening.beat, ended, by


def _steered(entry: EntryStatus) -> str | None:
    acts_on_it = (
        ("paused", entry.paused),
        ("changed", entry.changed),
        (f"omits {moment(entry.omitted)}", entry.omitted_by if entry.omitted in entry.upcoming else None),
    )
    return "; ".join(f"{what} {act_text(act)}" for what, act in acts_on_it if act) or None
