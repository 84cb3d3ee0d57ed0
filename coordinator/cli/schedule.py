"""The commands of `coordinator schedule`: the entries that beats know, what became of their ticks, and acts on them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from coordinator.cli.actions import Shown, acts
from coordinator.cli.format import as_json, pairs, table
from coordinator.cli.session import json_option, with_coordinator
from coordinator.cli.show import told
from coordinator.coordinator import Coordinator
from coordinator.scheduler.history import Happening
from coordinator.scheduler.timetable import Scheduled
from coordinator.store.times import moment


class Named(click.Group):
    """A first argument that is no command is the name of an entry, which is shown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=Named, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND]")
@click.option("--most", default=1000, show_default=True, type=click.IntRange(1), help="At most so many entries.")
@click.option("--prefix", default="", help="Only entries whose names begin so.")
@json_option
@with_coordinator
def schedule(coordinator: Coordinator, most: int, prefix: str, as_json_: bool) -> None:
    """List the entries of the schedule; show or steer one of them.

    NAME: show this entry, its next instants and what became of the last ones.
    """
    found = coordinator.entries.all(prefix, most)
    heads = ("entry", "when", "next", "starts", "lane", "steered")
    rows = ((one.name, one.words, _next(one), one.task, one.key, _steered(one)) for one in found)
    click.echo(as_json([_entry(one) for one in found]) if as_json_ else table(heads, rows))


@schedule.command("show")
@click.argument("name")
@json_option
@with_coordinator
def show_entry(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """Show an entry: its next instants, and what became of the last ones."""
    entry, past = coordinator.entries.entry(name), coordinator.entries.history(name)
    if as_json_:
        click.echo(as_json({**_entry(entry), "history": [asdict(one) for one in past]}))
        return
    click.echo(_shown(entry))
    click.echo()
    heads = ("instant", "what", "late", "beat", "job ended", "by")
    click.echo(table(heads, (_row(one) for one in past)) if past else "no tick was sent yet")


def _entry(one: Scheduled) -> dict[str, object]:
    return {**asdict(one), "next": one.next}


def _shown(one: Scheduled) -> str:
    omitted = f"{moment(one.omitted)}, {told(one.omitted_by)}" if one.omitted else None
    return pairs(
        [
            ("entry", one.name),
            ("when", one.words),
            ("expression", one.text if one.text != one.words else None),
            ("changed", told(one.changed)),
            ("paused", told(one.paused)),
            ("omitted", omitted),
            ("starts", one.task),
            ("lane", one.key),
            ("when busy", one.when_busy if one.key else None),
            ("misfire", one.misfire if one.misfire != "once" else None),
            ("source", one.source),
            *((_label(one, at, place), moment(at)) for place, at in enumerate(one.upcoming)),
        ]
    )


def _label(one: Scheduled, at: datetime, place: int) -> str:
    if one.paused:
        return "paused"
    return "omitted" if at == one.omitted else "next" if place == 0 else "then"


def _row(one: Happening) -> tuple[object, ...]:
    what = one.word if one.kind != "run" else f"run now: {one.word}"
    if one.missed:
        what += f" ({one.missed} missed)" if one.word != "missed" else f" ({one.missed})"
    ended = f"{one.state} {moment(one.ended)}" if one.state else None
    by = f"{one.by}: {one.why}" if one.why else one.by
    late = f"{one.late:.1f} s" if one.kind == "tick" and one.beat else None
    return one.at, what, late, one.beat, ended, by


def _next(one: Scheduled) -> object:
    return "paused" if one.paused else one.next


def _steered(one: Scheduled) -> str | None:
    said = (
        ("paused", one.paused),
        ("changed", one.changed),
        (f"omits {moment(one.omitted)}", one.omitted_by if one.omitted in one.upcoming else None),
    )
    return "; ".join(f"{what} {told(act)}" for what, act in said if act) or None


@acts("name", "NAME")
def pause(coordinator: Coordinator, name: str, why: str, by: str) -> Shown:
    """Send no tick of an entry until `resume`.

    Once the command has ended, no beat sends one. The instants of the pause are not missed ones.
    """
    new = coordinator.entries.pause(name, why=why, by=by)
    return {"entry": name, "paused": new}, f"{name} is paused" if new else f"{name} was paused already"


@acts("name", "NAME")
def resume(coordinator: Coordinator, name: str, why: str, by: str) -> Shown:
    """Send the ticks of a paused entry again."""
    was = coordinator.entries.resume(name, why=why, by=by)
    return {"entry": name, "resumed": was}, f"{name} goes on" if was else f"{name} was not paused"


@acts("name", "NAME")
def skip(coordinator: Coordinator, name: str, why: str, by: str) -> Shown:
    """Do not send the next tick of an entry."""
    at = coordinator.entries.skip_next(name, why=why, by=by)
    return {"entry": name, "omitted": at.isoformat()}, f"{name} will not be sent at {moment(at)}"


@acts("name", "NAME")
@click.option("--token", help="Asked for again with the same one, the entry runs once.")
def run(coordinator: Coordinator, name: str, token: str | None, why: str, by: str) -> Shown:
    """Run an entry now, out of turn, even while it is paused."""
    job_id = coordinator.entries.run_now(name, token=token, why=why, by=by)
    return {"entry": name, "id": job_id}, f"{name} runs within seconds, once a beat is there, as {job_id}"


@acts("name", "NAME")
@click.argument("expression")
def change(coordinator: Coordinator, name: str, expression: str, why: str, by: str) -> Shown:
    """Give an entry another schedule until `restore`.

    EXPRESSION: a Quartz expression in the entry's time zone, such as "0 0 1 * * ?", or "every 30" for seconds.
    """
    new = coordinator.entries.change(name, expression, why=why, by=by)
    return {"entry": name, "changed": new}, f"{name}: {coordinator.entries.entry(name, 1).words}"


@acts("name", "NAME")
def restore(coordinator: Coordinator, name: str, why: str, by: str) -> Shown:
    """Give an entry its own schedule again."""
    was = coordinator.entries.restore(name, why=why, by=by)
    words = coordinator.entries.entry(name, 1).words
    return {"entry": name, "restored": was}, words if was else f"{name} had its own schedule: {words}"


for command in (pause, resume, skip, run, change, restore):
    schedule.add_command(command)
