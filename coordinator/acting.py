"""The commands that act: put a job in line, wait for it, end it, and an operator's hand on a lane.

Who acts is kept with why: `--by`, unless given user@host.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import update_wrapper
from typing import Any

import click

from coordinator.drafts import WHEN_BUSY
from coordinator.extension import Coordinator
from coordinator.jobs import TERMINAL, Job
from coordinator.lanes import ENDS
from coordinator.nodes import Node
from coordinator.session import json_option, with_coordinator
from coordinator.store import seconds
from coordinator.tables import as_json, moment, pairs

Shown = tuple[dict[str, Any], str]  # for programs; for people


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _json(kind: type, name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Reads an option that is a JSON value of this kind."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> Any:
        try:
            found = json.loads(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not JSON: {error}", ctx, param) from error
        if not isinstance(found, kind):
            raise click.BadParameter(f"{value!r} is no {name}", ctx, param)
        return found

    return read


def acts(argument: str, metavar: str, *, needs_why: bool = True) -> Callable[[Callable[..., Shown]], click.Command]:
    """A command by which somebody acts on that argument; its function says what came of it."""
    why: dict[str, Any] = {"required": True} if needs_why else {"default": ""}

    def add(function: Callable[..., Shown]) -> click.Command:
        def act(coordinator: Coordinator, as_json_: bool, **given: Any) -> None:
            value, text = function(coordinator, **given)
            click.echo(as_json(value) if as_json_ else text)

        command: Any = json_option(with_coordinator(update_wrapper(act, function)))
        command = click.option("--by", default=_me, help="Who acts, kept too  [user@host].")(command)
        command = click.option("--why", help="Kept.", **why)(command)
        return click.command()(click.argument(argument, metavar=metavar)(command))

    return add


@click.command()
@click.argument("key")
@click.argument("task")
@click.option("--args", "arguments", callback=_json(list, "JSON list"), default="[]", metavar="JSON", help="A list.")
@click.option("--kwargs", callback=_json(dict, "JSON object"), default="{}", metavar="JSON", help="An object.")
@click.option("--id", "job_id", help="The job's id: what was submitted under it before is not submitted again.")
@click.option("--when-busy", type=click.Choice(WHEN_BUSY), default=WHEN_BUSY[0], show_default=True)
@click.option("--wait", "waits", is_flag=True, help="Until the job is over. Exit status 0 when it succeeded.")
@json_option
@with_coordinator
def submit(
    coordinator: Coordinator,
    key: str,
    task: str,
    arguments: list[Any],
    kwargs: dict[str, Any],
    job_id: str | None,
    when_busy: str,
    waits: bool,
    as_json_: bool,
) -> None:
    """Put a job that runs TASK in the lane KEY."""
    signature = {"task": task, "args": arguments, "kwargs": kwargs, "options": {}}
    made = coordinator.submit(key, signature, job_id=job_id, when_busy=when_busy)
    if waits and made.accepted:
        _until_over(coordinator, made.job_id, None, as_json_)
    elif as_json_:
        click.echo(as_json({"id": made.job_id, "outcome": made.outcome, "position": made.position}))
    elif not made.accepted:
        click.echo(f"{key} is busy: nothing was submitted")
    else:
        click.echo(f"{made.job_id} {made.outcome}" + (f", {made.position} before it" if made.position > 0 else ""))
    if not made.accepted:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--timeout", type=float, help="Seconds; the job itself goes on.")
@json_option
@with_coordinator
def wait(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    """Wait until a job is over, or held. Exit status 0 when it succeeded."""
    _until_over(coordinator, job_id, timeout, as_json_)


@click.command()
@click.argument("job_id", metavar="ID")
@json_option
@with_coordinator
def why(coordinator: Coordinator, job_id: str, as_json_: bool) -> None:
    """Why a job is where it is: from cause to cause, down to a root."""
    found = coordinator.why(job_id)
    click.echo(as_json(found) if as_json_ else "\n".join(found))


@acts("job_id", "ID", needs_why=False)
def cancel(coordinator: Coordinator, job_id: str, why: str, by: str) -> Shown:
    """End a job; a running one once its process was stopped, then it is rolled back."""
    state = coordinator.cancel(job_id, why=why, by=by)
    ending = {"running": "is being stopped", "cancelled": "is cancelled"}
    told = ending.get(state, f"was over: {state}" if state in TERMINAL else f"is {state}")
    return {"id": job_id, "state": state}, f"{job_id} {told}"


_to = click.option("--to", type=click.Choice(ENDS), default=ENDS[0], show_default=True, help="Of its priority.")


@acts("job_id", "ID")
@_to
def retry(coordinator: Coordinator, job_id: str, to: str, why: str, by: str) -> Shown:
    """Have a held job go on, one that waits for its retry at once, and one that ended badly again, as a new one."""
    state = coordinator.retry(job_id, to=to, why=why, by=by)
    return {"id": job_id, "state": state}, f"{job_id} is {state}"


@acts("job_id", "ID")
@click.option("--priority", type=int, help="-255 to 255, greater goes first.")
@_to
def move(coordinator: Coordinator, job_id: str, priority: int | None, to: str, why: str, by: str) -> Shown:
    """Give a job that waits another place in all its lanes."""
    state = coordinator.move(job_id, priority=priority, to=to, why=why, by=by)
    return {"id": job_id, "state": state}, f"{job_id} is moved to the {to} of its priority: {state}"


@acts("key", "KEY")
@click.argument("number", metavar="N", type=int)
def limit(coordinator: Coordinator, key: str, number: int, why: str, by: str) -> Shown:
    """Let N jobs of this lane run at once; 1 is usual, at 0 nothing starts. What was started goes on."""
    before = coordinator.set_limit(key, number, why=why, by=by)
    return {"key": key, "limit": number, "before": before}, f"{number} at once in {key}, {before} before"


@acts("key", "KEY")
@click.option("--holder", default="", metavar="ID", help="Only from this job: who asks twice takes it from no other.")
def release(coordinator: Coordinator, key: str, holder: str, why: str, by: str) -> Shown:
    """Take the lane from whoever holds it: that job ends as cancelled, without rollback; the next goes on at once."""
    held = coordinator.release(key, why=why, by=by, holder=holder)
    nobody = f"job {holder} does not hold {key}" if holder else f"nobody held {key}"
    return {"key": key, "released": held}, f"{key} is taken from job {held}" if held else nobody


@acts("key", "KEY")
def pause(coordinator: Coordinator, key: str, why: str, by: str) -> Shown:
    """Have nothing more start in this lane; what was started goes on."""
    new = coordinator.pause(key, why=why, by=by)
    return {"key": key, "paused": new}, f"{key} is paused" if new else f"{key} was paused already"


@acts("key", "KEY")
def resume(coordinator: Coordinator, key: str, why: str, by: str) -> Shown:
    """Have a paused lane go on."""
    was = coordinator.resume(key, why=why, by=by)
    return {"key": key, "resumed": was}, f"{key} goes on" if was else f"{key} was not paused"


@acts("node", "NODE")
def drain(coordinator: Coordinator, node: str, why: str, by: str) -> Shown:
    """Give a node nothing new; what runs there ends, or is handed over after a while. Until `undrain`."""
    new = coordinator.drain(node, why=why, by=by)
    alive = node in [one.name for one in coordinator.nodes()]
    unknown = "" if alive else "; none of that name is alive, one that comes is given nothing"
    return {"node": node, "drained": new}, f"{node} {'drains' if new else 'was drained already'}{unknown}"


@acts("node", "NODE")
def undrain(coordinator: Coordinator, node: str, why: str, by: str) -> Shown:
    """Give a drained node work again."""
    was = coordinator.undrain(node, why=why, by=by)
    return {"node": node, "undrained": was}, f"{node} {'takes work again' if was else 'was not drained'}"


@click.command("show")
@click.argument("name", metavar="NODE")
@json_option
@with_coordinator
def show_node(coordinator: Coordinator, name: str, as_json_: bool) -> None:
    """A node in full: what it serves, how busy it is, and when it was last chosen, and why."""
    found = [node for node in coordinator.nodes() if node.name == name]
    if not found:
        raise click.ClickException(f"no node {name} is alive")
    node = found[0]
    if as_json_:
        click.echo(as_json(node))
        return
    choices = [("chosen", _choice(choice)) for choice in node.choices]
    apart = ("tasks", "choices", "draining", "drained")
    named = [(field, getattr(node, field)) for field in node.__slots__ if field not in apart]
    tasks = [("task", task) for task in node.tasks]
    click.echo(pairs([*named, ("drained", drained(node)), *choices, *tasks]))


def _choice(choice: Mapping[str, Any]) -> str:
    """Why it was this node that was rung."""
    app, queue, *labels = choice["class"].split("\n")
    wanted = " ".join([queue, *labels]) + (f" of {app}" if app else "")
    beside = f", before {choice['next']} with {float(choice['next_score']):.3f}" if choice.get("next") else ""
    passed = f", after {choice['passed']} less busy that do not fit" if choice["passed"] else ""
    at = moment(datetime.fromtimestamp(choice["at"] / 1000, UTC))
    return f"{at} for {wanted}: score {choice['score']:.3f}{beside}{passed}"


def drained(node: Node) -> str:
    if node.drained:
        return told(node.drained) or ""
    return "it ends" if node.draining else ""


NODE_COMMANDS = (show_node, drain, undrain)
COMMANDS = (submit, wait, why, cancel, retry, move, limit, release, pause, resume)


def _until_over(coordinator: Coordinator, job_id: str, timeout: float | None, as_json_: bool) -> None:
    found = coordinator.wait(job_id, timeout)
    show(found, as_json_)
    if found.state != "succeeded":
        raise click.exceptions.Exit(1)


def show(job: Job, as_json_: bool) -> None:
    if as_json_:
        click.echo(as_json(job))
        return
    error = job.error or {}
    values = [
        ("id", job.id),
        ("state", job.state),
        ("keys", job.keys),
        ("task", job.task or "(lock)"),
        ("step", job.step or None),
        ("args", job.args),
        ("kwargs", job.kwargs),
        ("priority", job.priority or None),
        ("weight", job.weight if job.weight != "1" else None),
        ("attempt", job.attempt),
        ("losses", job.losses or None),
        ("node", job.node),
        ("fence", job.fence),
        ("progress", progress(job)),
        *((name, moment(at)) for name in ("submitted", "taken", "started", "ended") if (at := getattr(job, name))),
        ("result", job.result),
        ("error", _said(job.error)),
        ("by", error.get("by") and told({"by": error["by"], "at": error.get("at")})),
        ("rollback", job.rollback),
        ("fault", _said(job.fault)),
        *((name, told(act)) for name, act in job.acts.items()),
        ("traceback", error.get("traceback", "").strip().replace("\n", "\n" + " " * 11)),
    ]
    click.echo(pairs(values))


def _said(error: Mapping[str, Any] | None) -> str | None:
    return f"{error.get('type')}: {error.get('message')}" if error else None


def progress(job: Job) -> str | None:
    return f"{job.progress[0]}/{job.progress[1]}" if job.progress else None


def told(act: Mapping[str, Any] | None) -> str | None:
    """Who, when and why."""
    if act is None:
        return None
    when = seconds(act.get("at"))
    at = f" {moment(datetime.fromtimestamp(when, UTC))}" if when else ""
    reason = f": {act['why']}" if act.get("why") else ""
    return f"by {act.get('by')}{at}{reason}"
