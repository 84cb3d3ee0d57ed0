"""The command group `coordinator`, and its commands that show an installation.

Other commands are made of the verbs (`ops/cli/verbs.py`), are in `ops/cli/actions.py`, or are added by the app
(`Coordinator.extend`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Unpack

import click

from coordinator.coordinator import Coordinator
from coordinator.core.address import without_secrets
from coordinator.core.broker import settings_of
from coordinator.core.cursor import page_of
from coordinator.core.finding import Finding, sorted_findings
from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs.instances import GrabRecord
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.states import LaneState
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.lanes.view import Lane
from coordinator.core.store.library import Loaded
from coordinator.core.store.times import moment, span_text
from coordinator.core.version import VERSION
from coordinator.errors import CoordinatorError, SettingsError
from coordinator.ops.cli import actions
from coordinator.ops.cli.dashboard import dashboard
from coordinator.ops.cli.events import event
from coordinator.ops.cli.filters import filtered
from coordinator.ops.cli.format import as_json, as_pairs, as_table, as_text, columns_of, fitted, print_list
from coordinator.ops.cli.group import Commands, ShowByName
from coordinator.ops.cli.quotas import quotas
from coordinator.ops.cli.refused import refused
from coordinator.ops.cli.schedule import schedule
from coordinator.ops.cli.session import (
    WHICH_APP,
    Wrong,
    json_option,
    paged,
    session_of,
    wait_for_signal,
    with_app,
    with_coordinator,
)
from coordinator.ops.cli.show import (
    act_text,
    drained,
    error_text,
    groups_text,
    job_text,
    lane_text,
    node_text,
    progress,
)
from coordinator.ops.cli.sorters import sorters
from coordinator.ops.cli.tenants import tenants
from coordinator.ops.cli.verbs import commands_of
from coordinator.ops.diagnosis.lost import LostNode
from coordinator.ops.diagnosis.rates import Span
from coordinator.ops.diagnosis.redis_status import RedisStatus
from coordinator.ops.diagnosis.status import Status, status_of
from coordinator.ops.readings import LANE_STATE
from coordinator.ops.search.filter import JobFilter
from coordinator.ops.search.groups import BY, By
from coordinator.ops.verbs.acknowledged import acknowledged, acknowledged_text
from coordinator.ops.verbs.declared import verbs

_COUNTS = 10.0  # seconds for which `jobs --by` counts
IN_LINE = ("waiting", "ready", "running", "retrying", "parked", "held")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-A", "--app", is_eager=True, metavar="APP", help="The Celery app: module or module:name.")
@click.version_option(VERSION, "--version", message="%(version)s")
def cli(app: str | None) -> None:
    """Keyed jobs for Celery: look at them, submit them, and act on them, their lanes and nodes."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")  # the text alone, as commands print errors
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False


@cli.command()
@json_option
@with_coordinator
def status(coordinator: Coordinator, as_json_: bool) -> None:
    """Show Redis, the nodes, the number of jobs in each state, and what is wrong.

    The exit status is 1 if nodes are alive, but none of them has a label that jobs need.
    """
    findings = acknowledged(coordinator.store, coordinator._findings())
    report = status_of(coordinator.store, findings, _refused_requests(coordinator))
    if as_json_:
        click.echo(as_json(report))
    else:
        _show_status(report)
    if report.stopped:
        raise click.exceptions.Exit(1)


def _refused_requests(coordinator: Coordinator) -> int | None:
    """Count the requests that the app's inboxes refused; None without an app, or while its broker does not answer."""
    with suppress(CoordinatorError):
        return sum(coordinator.refused_counts().values())
    return None


def _show_status(report: Status) -> None:
    jobs = ", ".join(f"{count} {state}" for state, count in report.jobs.items())
    server = RedisStatus(report.redis, report.version, report.answers, report.used_memory, report.maxmemory)
    answers = str(server).removeprefix("Redis ")
    click.echo(
        as_pairs(
            [
                ("redis", f"{report.redis} ({report.version}), prefix {report.prefix}\n{answers}"),
                ("master", report.master and f"{report.master}, replicas that follow it: {report.replicas}"),
                ("nodes", f"{report.nodes} alive, {report.running} of {report.capacity} slots busy"),
                ("sweep", "none yet" if report.swept is None else f"last {report.swept:.1f} s ago"),
                ("jobs", jobs or "none"),
                ("hour", _span_text(report.hour)),
                ("day", _span_text(report.day)),
                ("refused", f"{report.refused} requests: coordinator refused" if report.refused else None),
            ]
        )
    )
    for finding in report.findings:
        if finding.level != "info" and not finding.acknowledged:
            click.secho(fitted(str(finding)), fg=COLORS[finding.level], err=True)
    for line in acknowledged_text(report.findings):
        click.echo(fitted(line), err=True)


def _span_text(span: Span) -> str:
    rate = f"{span.per_second:.3g} jobs a second, {span.failed} failed"
    more = "".join(f", {span.counts[name]} {name}" for name in ("retries", "losses") if span.counts[name])
    return f"{rate}{more} (counted for {span_text(span.seconds)})"


COLORS = {"error": "red", "warning": "yellow", "info": None}


@cli.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json_: bool) -> None:
    """Look for faults and dangers, and say what mends each.

    Reads Redis, the nodes and keys without an owner; with an app also its tasks, its schedule, and this host's systemd
    units. The exit status is 2 if there is an error, 1 if there are only warnings; what `coordinator ack` acknowledged
    does not count.
    """
    _show_findings(session_of(ctx.find_root()).coordinator.doctor(), as_json_)


@cli.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json_: bool) -> None:
    """Check an app before it is started: tasks that will not work as jobs, and what differs from plain Celery.

    This is the part of `doctor` that reads the app; from Redis it reads only the schedule entries stored there.
    """
    from coordinator.ops.app_check import of_app  # imported here to keep `--help` fast

    app = session_of(ctx.find_root()).coordinator.app
    if app is None:
        raise click.UsageError(f"check reads an app: {WHICH_APP}")
    _show_findings(sorted_findings(of_app(app)), as_json_)


@cli.command("check-redis")
@click.argument("url", required=False)
@json_option
@click.pass_context
def check_redis(ctx: click.Context, url: str | None, as_json_: bool) -> None:
    """Try whether a Redis will do, before a node is started, and say what it costs.

    URL: that Redis; without it, the one of the app's settings. The check runs real steps below a prefix of its own and
    removes what it wrote; it disturbs no fleet that works there. The exit status is 2 if no node can work there, 1 if
    there are only warnings.
    """
    from coordinator.ops.diagnosis import redis_check  # imported here to keep `--help` fast

    session = session_of(ctx.find_root())
    own = session.coordinator._own_settings if session.app else {}
    try:
        settings = settings_of(session.app, {**own, "url": url or own.get("url")})
    except SettingsError as error:
        raise Wrong(str(error).replace("setting url (constructor)", "URL") if url else str(error)) from error
    if not settings.url:
        raise click.UsageError("name the Redis: coordinator check-redis redis://HOST:PORT/0, or its app: -A APP")
    lines = redis_check.check_redis(settings)
    worst = max((line.verdict for line in lines), key=redis_check.VERDICTS.index)
    if as_json_:
        print_list("checks", lines, {}, as_json_, verdict=worst)
    for line in () if as_json_ else lines:
        click.secho(fitted(f"{line.verdict:8}{line.check}: {line.text}"), fg=VERDICT_COLORS[line.verdict])
        if line.fix:
            click.echo(f"  fix: {with_app(line.fix)}")
    raise click.exceptions.Exit(redis_check.VERDICTS.index(worst))


VERDICT_COLORS = {"refused": "red", "warning": "yellow", "ok": None}


def _show_findings(found: list[Finding], as_json_: bool) -> None:
    if as_json_:
        print_list("findings", found, {}, as_json_)
    counted = [finding for finding in found if not finding.acknowledged]
    for finding in () if as_json_ else counted:
        click.secho(fitted(str(finding)), fg=COLORS[finding.level])
        if finding.fix:
            click.echo(f"  fix: {with_app(finding.fix)}")
    for line in () if as_json_ else acknowledged_text(found):
        click.echo(fitted(line))
    if not (as_json_ or found):
        click.echo("nothing found")
    levels = {finding.level for finding in counted}
    raise click.exceptions.Exit(2 if "error" in levels else int("warning" in levels))


@cli.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Serve them on this port, at /metrics, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve them at, with --port.")
@with_coordinator
def metrics(coordinator: Coordinator, port: int | None, host: str) -> None:
    """Print the metrics for Prometheus, or serve them over HTTP."""
    try:
        from prometheus_client import generate_latest, start_http_server  # an optional dependency, so imported here

        from coordinator.ops.metrics import registry_of
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'celery-coordinator[metrics]'") from error
    registry = registry_of(coordinator)
    if port is None:
        coordinator.counts()  # raises if Redis is away or refuses, while the metrics would only show redis_up 0
        return click.echo(generate_latest(registry).decode().rstrip())
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise click.ClickException(f"cannot serve at {host}:{port}: {error.strerror}") from error
    click.echo(f"http://{host}:{port}/metrics")
    wait_for_signal()


@cli.command()
@filtered
@click.option("--by", type=click.Choice(BY), help="Count the jobs by this instead: for ten seconds at most.")
@paged(50)
@json_option
@with_coordinator
def jobs(
    coordinator: Coordinator, by: By | None, most: int, after: str, as_json_: bool, **wanted: Unpack[JobFilter]
) -> None:  # fmt: skip
    """Find jobs: those that are not over, by lane, then those that are, the latest first.

    Times, states and keys are looked up in indexes. A task, an argument, an error or a node is searched for in the
    first 10,000 jobs that the other options leave; the last line says so if there may be more.
    """
    if by:
        groups = coordinator.job_groups(by, seconds=_COUNTS, **wanted)
        return click.echo(as_json(groups) if as_json_ else groups_text(groups))
    found = coordinator.jobs(most=most, after=after, **wanted)
    if as_json_:
        click.echo(as_json(found))
        return
    columns: dict[str, Callable[[Job], object]] = {
        "id": lambda job: job.id,
        "state": lambda job: job.state + " (damaged)" * bool(job.damaged),
        "keys": lambda job: tuple(map(shown_lane, job.keys)),
        "task": lambda job: job.task or "(lock)",
        "attempt": lambda job: job.attempt,
        "progress": progress,
        **columns_of("node"),
        "ended or submitted": lambda job: job.ended or job.submitted,
        "error": lambda job: error_text(job.error) if job.state != "succeeded" else None,
    }
    print_list("jobs", found.jobs, columns, False, found.after)
    if not found.complete:
        click.echo(f"searched {found.searched} jobs, not all", err=True)


@cli.command()
@click.argument("prefix", default="")
@click.option("--state", type=click.Choice((*IN_LINE, "empty")), help=LANE_STATE.help)
@paged(1000)
@json_option
@with_coordinator
def lanes(
    coordinator: Coordinator, prefix: str, state: LaneState | None, most: int, after: str, as_json_: bool
) -> None:
    """List the lanes that have jobs, or are paused.

    PREFIX: only lanes whose keys begin with this.
    """
    listed, after = page_of(coordinator.lanes(prefix, state, most + 1, after), most, attrgetter("key"))
    columns: dict[str, Callable[[Lane], object]] = {
        "key": lambda lane: shown_lane(lane.key),
        "state": lambda lane: lane.state,
        "held by": lambda lane: ", ".join(f"{holder} since {as_text(holder.since)}" for holder in lane.holders),
        "in line": lambda lane: lane.length,
        "paused": lambda lane: act_text(lane.pause),
        "first": lambda lane: lane.jobs[0] if lane.jobs else None,
    }
    print_list("lanes", listed, columns, as_json_, after)


@cli.command()
@click.argument("key")
@click.option("--most", type=click.IntRange(1), default=50, show_default=True, help="At most so many jobs in line.")
@click.option("--runs", type=click.IntRange(0), default=10, show_default=True, help="At most so many ended jobs.")
@json_option
@with_coordinator
def lane(coordinator: Coordinator, key: str, most: int, runs: int, as_json_: bool) -> None:
    """Show a lane: its holder, its line from the front on, and its last runs."""
    shown = coordinator.lane(key, most, runs)
    click.echo(as_json(shown) if as_json_ else lane_text(shown, coordinator.line(shown)))


HISTORY = click.option("--history", is_flag=True, help="Also the earlier winners of each instance.")


@cli.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[KEY | COMMAND]")
@paged(50)
@HISTORY
@json_option
@with_coordinator
def grabs(coordinator: Coordinator, most: int, after: str, history: bool, as_json_: bool) -> None:
    """List the instances that were grabbed: who won each, and how it ended; release one.

    KEY: only the instances of this key.
    """
    _show_grabs(coordinator, None, most, after, history, as_json_)


@grabs.command("show")
@click.argument("key")
@paged(50)
@HISTORY
@json_option
@with_coordinator
def show_grabs(coordinator: Coordinator, key: str, most: int, after: str, history: bool, as_json_: bool) -> None:
    """List the instances of one key."""
    _show_grabs(coordinator, key, most, after, history, as_json_)


def _show_grabs(
    coordinator: Coordinator, key: str | None, most: int, after: str, history: bool, as_json_: bool
) -> None:
    instances, after = page_of(coordinator.grabs(key, most + 1, after), most, attrgetter("cursor"))
    every = [grab for last in instances for grab in ((last, *last.earlier) if history else (last,))]
    columns: dict[str, Callable[[GrabRecord], object]] = {
        **columns_of("key", "instance"),
        "winner": lambda grab: grab.winner and grab.winner.identifier,
        "host": lambda grab: grab.winner and grab.winner.place,
        **columns_of("state", "attempt", "started", "ended"),
        "why": lambda grab: grab.value if grab.state in ("failed", "abandoned") else None,
    }
    print_list("grabs", instances if as_json_ else every, columns, as_json_, after)


@cli.group(invoke_without_command=True)
@click.option("--lost", is_flag=True, help="List nodes that were killed or cut off in the last hour, and their jobs.")
@paged(1000)
@json_option
@with_coordinator
def nodes(coordinator: Coordinator, lost: bool, most: int, after: str, as_json_: bool) -> None:
    """List the living nodes; show or drain one of them."""
    if lost:
        about: dict[str, Callable[[LostNode], object]] = {
            **columns_of(node="name", lost="at"),
            **columns_of("host", "app", "back"),
            "jobs": str,
        }
        return print_list("nodes", coordinator.lost_nodes(), about, as_json_, "")
    every = Nodes(coordinator.store).all()
    living = [node for node in every if node.alive]
    shown, after = page_of([node for node in living if node.name > after], most, attrgetter("name"))
    columns: dict[str, Callable[[Node], object]] = {
        **columns_of(node="name", slots="capacity"),
        **columns_of("running", "rung", "ordinary"),
        "load": lambda node: round(node.load, 3),
        "memory": lambda node: round(node.memory, 3),
        "score": lambda node: node.score and round(node.score, 3),
        **columns_of("version", "queues", "labels"),
        "drained": drained,
    }
    print_list("nodes", shown, columns, as_json_, after)
    for node in every:
        if not node.alive:
            click.echo(f"gone: {node.name}; the next living node takes over its jobs", err=True)
    for one in coordinator.lost_nodes():
        back = ", and is back" if one.back else ""
        click.echo(f"killed or cut off at {moment(one.at)}: {one.name}{back}; {one}", err=True)
    for why in coordinator.needed_labels.values():
        for line in why(coordinator.store):
            click.echo(line, err=True)
    for name, act in Nodes(coordinator.store).drained().items():
        if name not in [node.name for node in living]:
            click.echo(f"not alive, and drained if it starts again: {name}, {act_text(act)}", err=True)


@nodes.command("show")
@click.argument("name", metavar="NODE")
@json_option
@with_coordinator
def show_node(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """Show a node: its queues and tasks, how busy it is, and when and why it was woken."""
    nodes = [node for node in coordinator.nodes() if node.name == name]
    if not nodes:
        raise Wrong(f"no node {name} is alive: coordinator nodes lists those that are, and those that were lost")
    node = nodes[0]
    click.echo(as_json(node) if as_json_ else node_text(node))


@cli.group(invoke_without_command=True)
@json_option
@with_coordinator
def libraries(coordinator: Coordinator, as_json_: bool) -> None:
    """List the function libraries on the Redis server: of this version, of other versions, and of other programs."""
    columns: dict[str, Callable[[Loaded], object]] = {
        "library": lambda library: library.name,
        "digest": lambda library: library.digest,
        "ours": lambda library: "yes" if library.digest else "no",
        "version": lambda library: "this" if library.current else None,
    }
    print_list("libraries", coordinator.store.libraries(), columns, as_json_)


@libraries.command("remove")
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove even the library of this version.")
@with_coordinator
def remove_library(coordinator: Coordinator, name: str, force: bool) -> None:
    """Remove a function library that an older version left. A process that still uses the library loads it again."""
    by_name = {library.name: library for library in coordinator.store.libraries()}
    if name not in by_name:
        raise click.ClickException(f"no library {name!r} on this server: see `coordinator libraries`")
    if not by_name[name].digest:
        raise click.ClickException(
            f"{name!r} is not the coordinator's: remove it with redis-cli FUNCTION DELETE {name}"
        )
    if by_name[name].current and not force:
        raise click.ClickException(f"{name!r} is the library of this very version: --force removes it all the same")
    coordinator.store.remove_library(name)
    click.echo(f"removed {name}")


@cli.command()
@json_option
@with_coordinator
def settings(coordinator: Coordinator, as_json_: bool) -> None:
    """Show each setting, its value and its source."""
    current = coordinator.settings
    values = {**current.model_dump(), "url": without_secrets(current.url)}
    if as_json_:
        click.echo(as_json({name: {"value": value, "from": current.source(name)} for name, value in values.items()}))
        return
    meanings = {name: field.description for name, field in type(current).model_fields.items()}
    rows = ((name, as_text(value), current.source(name), meanings[name]) for name, value in values.items())
    click.echo(as_table(("setting", "value", "from", "meaning"), rows))


@cli.command()
@click.argument("job_id", metavar="ID")
@json_option
@with_coordinator
def job(coordinator: Coordinator, job_id: str, as_json_: bool) -> None:
    """Show all that Redis keeps of a job."""
    job = coordinator.job(job_id)
    click.echo(as_json(job) if as_json_ else job_text(job))


GROUPS: dict[str, click.Group] = {
    "": cli, "nodes": nodes, "grabs": grabs, "schedule": schedule, "sorters": sorters, "refused": refused,
    "event": event,
}  # fmt: skip
for command in (*actions.COMMANDS, dashboard, event, quotas, schedule, sorters, refused, tenants):
    cli.add_command(command)
for name, group in GROUPS.items():
    for command in commands_of(verbs().values(), name):
        group.add_command(command)


def main() -> None:
    cli(prog_name="coordinator")
