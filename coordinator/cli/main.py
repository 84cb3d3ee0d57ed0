"""The commands of `coordinator …` that look at an installation.

The commands that act on it are in `actions`. An app adds its own (`Coordinator.commands`).
"""

from __future__ import annotations

import logging
from dataclasses import asdict

import click

from coordinator.address import without_secrets
from coordinator.cli import actions
from coordinator.cli.format import as_json, pairs, table, text
from coordinator.cli.schedule import schedule
from coordinator.cli.session import Commands, json_option, with_coordinator
from coordinator.cli.show import drained, job_text, progress, told
from coordinator.coordinator import Coordinator
from coordinator.diagnosis.status import Status, list_jobs, out_of_replica_sets, status_of
from coordinator.fleet.nodes import Nodes
from coordinator.jobs.instances import shown_lane
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.states import LaneState
from coordinator.version import VERSION

IN_LINE = ("waiting", "ready", "running", "retrying", "parked", "held")
STATES = (*IN_LINE, "rolling_back", "scheduled", "collected", *sorted(TERMINAL))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-A", "--app", is_eager=True, metavar="APP", help="The Celery app: module or module:name.")
@click.version_option(VERSION, "--version", message="%(version)s")
def cli(app: str | None) -> None:
    """Keyed jobs for Celery: look at them, submit them, and act on them, their lanes and nodes."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")  # errors are a command's own words


@cli.command()
@json_option
@with_coordinator
def status(coordinator: Coordinator, as_json_: bool) -> None:
    """Show Redis, the nodes, the number of jobs in each state, and what is wrong.

    The exit status is 1 where nodes live, and none of them may read a document that its jobs need.
    """
    found = status_of(coordinator.store, coordinator.documents.kept)
    if as_json_:
        click.echo(as_json(found))
    else:
        _show_status(found)
    if found.stopped:
        raise click.exceptions.Exit(1)


def _show_status(found: Status) -> None:
    jobs = ", ".join(f"{count} {state}" for state, count in found.jobs.items())
    click.echo(
        pairs(
            [
                ("redis", f"{found.redis} ({found.version}), prefix {found.prefix}"),
                ("master", found.master and f"{found.master}, replicas that follow it: {found.replicas}"),
                ("nodes", f"{found.nodes} alive, {found.running} of {found.capacity} slots busy"),
                ("jobs", jobs or "none"),
            ]
        )
    )
    for warning in found.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)


@cli.command()
@click.option("--key", default="", help="Only jobs of this lane.")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--most", default=50, show_default=True, type=click.IntRange(1), help="At most so many, the newest.")
@json_option
@with_coordinator
def jobs(coordinator: Coordinator, key: str, state: str | None, most: int, as_json_: bool) -> None:
    """List the newest jobs, the running ones first."""
    found = list_jobs(coordinator.store, key=key, state=state or "", most=most)
    heads = ("id", "state", "keys", "task", "attempt", "progress", "node", "submitted")
    rows = (
        (
            *(job.id, job.state, tuple(map(shown_lane, job.keys)), job.task or "(lock)"),
            *(job.attempt, progress(job), job.node, job.submitted),
        )
        for job in found
    )
    click.echo(as_json(found) if as_json_ else table(heads, rows))


@cli.command()
@click.argument("prefix", default="")
@click.option("--state", type=click.Choice((*IN_LINE, "empty")), help="Only lanes with a first job in this state.")
@click.option("--most", type=click.IntRange(1), default=1000, show_default=True, help="At most so many.")
@click.option("--after", default="", metavar="KEY", help="The last key of the page before.")
@json_option
@with_coordinator
def lanes(
    coordinator: Coordinator, prefix: str, state: LaneState | None, most: int, after: str, as_json_: bool
) -> None:
    """List the lanes that have jobs, are paused or limited.

    PREFIX: only lanes whose keys begin so.
    """
    found = coordinator.lanes(prefix, state, most, after)
    heads = ("key", "state", "in line", "limit", "paused", "first", "held by")
    rows = (
        (
            *(shown_lane(lane.key), lane.state, lane.length),
            f"{lane.limit} {told(lane.limited)}" if lane.limited else None,
            *(told(lane.pause), lane.jobs[0] if lane.jobs else None, lane.holder),
        )
        for lane in found
    )
    click.echo(as_json(found) if as_json_ else table(heads, rows))


@cli.command()
@click.argument("key", default="")
@click.option(
    "--most", default=50, show_default=True, type=click.IntRange(1), help="At most so many of each key, the latest."
)
@json_option
@with_coordinator
def grabs(coordinator: Coordinator, key: str, most: int, as_json_: bool) -> None:
    """List the instances that were grabbed: who won each, and how it ended.

    KEY: only its instances.
    """
    found = coordinator.grabs(key or None, most)
    heads = ("key", "instance", "winner", "host", "state", "attempt", "started", "ended")
    rows = (
        (
            *(one.key, one.instance),
            *((one.winner.identifier, one.winner.place) if one.winner else ("", "")),
            *(one.state, one.attempt, one.started, one.ended),
        )
        for one in found
    )
    click.echo(as_json([asdict(one) for one in found]) if as_json_ else table(heads, rows))


@cli.command()
@json_option
@with_coordinator
def sorters(coordinator: Coordinator, as_json_: bool) -> None:
    """List the sorters that hold orders.

    DUE: when a sorter puts its orders in line, unless more come.
    """
    found = coordinator.sorters()
    rows = ((one.name, one.collected, one.flushing, one.first, one.due) for one in found)
    click.echo(as_json(found) if as_json_ else table(("sorter", "collected", "flushing", "first", "due"), rows))


@cli.group(invoke_without_command=True)
@json_option
@with_coordinator
def nodes(coordinator: Coordinator, as_json_: bool) -> None:
    """List the living nodes; show or drain one of them."""
    every = Nodes(coordinator.store).all()
    found = [node for node in every if node.alive]
    heads = ("node", "slots", "running", "rung", "ordinary", "load", "memory", "score", "version", "queues", "labels")
    fields = ("name", "capacity", *heads[2:])
    rows = ((*(_shortened(getattr(node, name)) for name in fields), drained(node)) for node in found)
    click.echo(as_json(found) if as_json_ else table((*heads, "drained"), rows))
    for node in every:
        if not node.alive:
            click.echo(f"gone: {node.name}; the next living node takes over its jobs", err=True)
    for line in out_of_replica_sets(coordinator.store, coordinator.documents.kept):
        click.echo(line, err=True)
    for name, act in Nodes(coordinator.store).drained().items():
        if name not in [node.name for node in found]:
            click.echo(f"not alive, and drained when it comes: {name}, {told(act)}", err=True)


def _shortened(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


for command in actions.NODE_COMMANDS:
    nodes.add_command(command)


@cli.group(invoke_without_command=True)
@json_option
@with_coordinator
def libraries(coordinator: Coordinator, as_json_: bool) -> None:
    """The libraries of functions on the Redis server: of this version, of other versions, others'."""
    found = coordinator.store.libraries()
    rows = (
        (one.name, one.digest or None, "yes" if one.digest else "no", "this" if one.current else None) for one in found
    )
    as_dicts = [one._asdict() for one in found]
    click.echo(as_json(as_dicts) if as_json_ else table(("library", "digest", "ours", "version"), rows))


@libraries.command("remove")
@click.argument("name")
@click.option("--force", is_flag=True, help="Even that of this very version.")
@with_coordinator
def remove_library(coordinator: Coordinator, name: str, force: bool) -> None:
    """Remove a library that an older version left; a process that still uses it loads it again."""
    found = {one.name: one for one in coordinator.store.libraries()}
    if name not in found:
        raise click.ClickException(f"no library {name!r} on this server: see `coordinator libraries`")
    if not found[name].digest:
        raise click.ClickException(
            f"{name!r} is not the coordinator's: remove it with redis-cli FUNCTION DELETE {name}"
        )
    if found[name].current and not force:
        raise click.ClickException(f"{name!r} is the library of this very version: --force removes it all the same")
    coordinator.store.remove_library(name)
    click.echo(f"removed {name}")


@cli.command()
@json_option
@with_coordinator
def settings(coordinator: Coordinator, as_json_: bool) -> None:
    """Show each setting, its value and its source."""
    found = coordinator.settings
    values = {**found.model_dump(), "url": without_secrets(found.url)}
    if as_json_:
        click.echo(as_json({name: {"value": value, "from": found.source(name)} for name, value in values.items()}))
        return
    meanings = {name: field.description for name, field in type(found).model_fields.items()}
    rows = ((name, text(value), found.source(name), meanings[name]) for name, value in values.items())
    click.echo(table(("setting", "value", "from", "meaning"), rows))


@cli.command()
@click.argument("job_id", metavar="ID")
@json_option
@with_coordinator
def job(coordinator: Coordinator, job_id: str, as_json_: bool) -> None:
    """Show all that Redis keeps of a job."""
    job = coordinator.job(job_id)
    click.echo(as_json(job) if as_json_ else job_text(job))


for command in (*actions.COMMANDS, schedule):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="coordinator")
