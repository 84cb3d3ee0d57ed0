"""`coordinator …`: look at an installation. Commands that act on it are in `acting`; an app adds its own
(`Coordinator.commands`)."""

from __future__ import annotations

import logging
import re

import click

from coordinator import acting, overview
from coordinator.extension import Coordinator
from coordinator.nodes import Nodes
from coordinator.session import Commands, json_option, with_coordinator
from coordinator.tables import as_json, pairs, table
from coordinator.version import VERSION


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-A", "--app", is_eager=True, metavar="APP", help="The Celery app, as for celery: module or module:name.")
@click.version_option(VERSION, "--version", message="%(version)s")
def cli(app: str | None) -> None:
    """Keyed jobs for Celery: look at them, wait for them, cancel them."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")  # a command's own words are enough


@cli.command()
@json_option
@with_coordinator
def status(coordinator: Coordinator, as_json_: bool) -> None:
    """Redis, nodes, how many jobs in which state, and what is wrong."""
    found = overview.status(coordinator.store)
    if as_json_:
        click.echo(as_json(found))
        return
    jobs = ", ".join(f"{count} {state}" for state, count in found.jobs.items())
    click.echo(
        pairs(
            [
                ("redis", f"{found.redis} ({found.version}), prefix {found.prefix}"),
                ("nodes", f"{found.nodes} alive, {found.running} of {found.capacity} slots at work"),
                ("jobs", jobs or "none"),
            ]
        )
    )
    for warning in found.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)


@cli.command()
@click.option("--key", default="", help="Only those of this lane.")
@click.option("--state", default="", help="Only those in this state.")
@click.option("--most", default=50, show_default=True, type=click.IntRange(1), help="At most so many, the newest.")
@json_option
@with_coordinator
def jobs(coordinator: Coordinator, key: str, state: str, most: int, as_json_: bool) -> None:
    """The newest jobs, the running ones first."""
    found = overview.jobs(coordinator.store, key=key, state=state, most=most)
    heads = ("id", "state", "keys", "task", "attempt", "progress", "node", "submitted")
    rows = (
        (job.id, job.state, job.keys, job.task or "(lock)", job.attempt, acting.progress(job), job.node, job.submitted)
        for job in found
    )
    click.echo(as_json(found) if as_json_ else table(heads, rows))


@cli.command()
@click.argument("prefix", default="")
@click.option("--state", help="Only those whose first job is in this state.")
@click.option("--most", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--after", default="", metavar="KEY", help="The last key of the page before.")
@json_option
@with_coordinator
def lanes(coordinator: Coordinator, prefix: str, state: str | None, most: int, after: str, as_json_: bool) -> None:
    """The lanes that are not empty, paused, or with a limit of their own, of keys that begin with PREFIX."""
    found = coordinator.lanes(prefix, state, most, after)
    heads = ("key", "state", "in line", "first", "held by", "limit", "paused")
    rows = (
        (
            *(lane.key, lane.state, lane.length, lane.jobs[0] if lane.jobs else None, lane.holder),
            f"{lane.limit} {acting.told(lane.limited)}" if lane.limited else None,
            acting.told(lane.pause),
        )
        for lane in found
    )
    click.echo(as_json(found) if as_json_ else table(heads, rows))


@cli.command()
@json_option
@with_coordinator
def sorters(coordinator: Coordinator, as_json_: bool) -> None:
    """The sorters that hold orders: how many, and when they put them in line unless more come."""
    found = coordinator.sorters()
    rows = ((one.name, one.collected, one.flushing, one.first, one.due) for one in found)
    click.echo(as_json(found) if as_json_ else table(("sorter", "collected", "flushing", "first", "due"), rows))


@cli.group(invoke_without_command=True)
@json_option
@with_coordinator
def nodes(coordinator: Coordinator, as_json_: bool) -> None:
    """The coordinating nodes that are alive; one of them in full, or drained."""
    if (subcommand := click.get_current_context().invoked_subcommand) is not None:
        if as_json_:
            raise click.UsageError(f"give --json to the command: nodes {subcommand} --json")
        return
    every = Nodes(coordinator.store).all()
    found = [node for node in every if node.alive]
    heads = ("node", "slots", "running", "rung", "ordinary", "load", "memory", "score", "version", "queues", "labels")
    fields = ("name", "capacity", *heads[2:])
    rows = ((*(_shortened(getattr(node, name)) for name in fields), acting.drained(node)) for node in found)
    click.echo(as_json(found) if as_json_ else table((*heads, "drained"), rows))
    for node in every:
        if not node.alive:
            click.echo(f"gone: {node.name}; the first node that lives takes over what it ran", err=True)
    for name, act in Nodes(coordinator.store).drained().items():
        if name not in [node.name for node in found]:
            click.echo(
                f"not alive, and to be given nothing when it comes: {name}, drained {acting.told(act)}", err=True
            )


def _shortened(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


for command in acting.NODE_COMMANDS:
    nodes.add_command(command)


@cli.command()
@json_option
@with_coordinator
def settings(coordinator: Coordinator, as_json_: bool) -> None:
    """Each setting, its value, and where that came from."""
    found = coordinator.settings
    values = {**found.model_dump(), "url": re.sub(r"//[^@/]*@", "//***@", found.url)}
    if as_json_:
        click.echo(as_json({name: {"value": value, "from": found.source(name)} for name, value in values.items()}))
        return
    meanings = {name: field.description for name, field in type(found).model_fields.items()}
    rows = ((name, str(value), found.source(name), meanings[name]) for name, value in values.items())
    click.echo(table(("setting", "value", "from", "meaning"), rows))


@cli.command()
@click.argument("job_id", metavar="ID")
@json_option
@with_coordinator
def job(coordinator: Coordinator, job_id: str, as_json_: bool) -> None:
    """All that is kept of a job."""
    acting.show(coordinator.job(job_id), as_json_)


for command in acting.COMMANDS:
    cli.add_command(command)


def main() -> None:
    cli(prog_name="coordinator")


if __name__ == "__main__":
    main()
