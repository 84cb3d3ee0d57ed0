"""Makes commands from the declarations of verbs, both the library's verbs and those that an app adds.

Each of these commands takes a reason, an author and perhaps a ticket: `--why`, `--by` (default: user@host), `--ticket`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeAlias, cast

import click

from coordinator.coordinator import Coordinator
from coordinator.core.store.times import instant, moment
from coordinator.core.verbs import LANE, Answer, Given, Thing, Verb
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.ops.cli.filters import filtered
from coordinator.ops.cli.format import as_json, as_table
from coordinator.ops.cli.options import Decorator, option_of
from coordinator.ops.cli.session import Wrong, act_options, json_option, with_coordinator
from coordinator.ops.search.filter import FILTERS, JobFilter, pinned
from coordinator.ops.verbs.bulk import ActingOn, BulkVerb
from coordinator.ops.verbs.jobs import counted
from coordinator.ops.verbs.plan import Plan, dependants_text

Run: TypeAlias = Callable[[Verb, Coordinator, bool, bool, Given], None]

_ON_JOBS = """

ID: one job. Without ID, the command acts on all jobs that options such as --state and --key find: it counts them, then
acts in portions. If it was stopped, the same command does the rest."""
_ON_LANES = """

KEY: a lane, or all lanes that are there now and whose keys begin so: 'sync/*'. One that comes later is not changed."""
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change, and what would start.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask before an act on many.")


def commands_of(verbs: Iterable[Verb], group: str = "") -> list[click.Command]:
    """Make the commands of those verbs that belong to the command group `group`; "": directly to `coordinator`."""
    return [command_of(verb) for verb in verbs if verb.command.rpartition(" ")[0] == group]


def command_of(verb: Verb) -> click.Command:
    """Make the command of a verb. If the verb may act on many things, its command also takes the options of a job
    filter, or a prefix of keys.
    """
    many = "" if not verb.many else "lanes" if verb.thing == LANE else "jobs"
    run: Run = {"jobs": _on_jobs, "lanes": _on_lanes}.get(many, _on_one)

    def act(coordinator: Coordinator, /, as_json_: bool, dry_run: bool = False, **values: Any) -> None:
        try:
            run(verb, coordinator, as_json_, dry_run, values)
        except InvalidJob as error:
            raise Wrong(_as_options(verb, str(error))) from error

    arguments = [f"\n\n{one.placeholder.strip('[].')}: {one.help}" for one in verb.options if one.argument and one.help]
    act.__doc__ = "".join([verb.help, {"": "", "jobs": _ON_JOBS, "lanes": _ON_LANES}[many], *arguments])
    decorators: list[Decorator] = [*_arguments(verb.thing, many), *map(option_of, verb.options)]
    decorators += [dry_run_option] if verb.plan else []
    decorators += [yes_option] if many else []
    command: Callable[..., None] = act_options(json_option(with_coordinator(act)))
    command = filtered(command) if many == "jobs" else command
    for decorate in reversed(decorators):
        command = decorate(command)
    return click.command(verb.command.rpartition(" ")[2])(command)


def _as_options(verb: Verb, text: str) -> str:
    """Write the arguments that the text of an error names in Python (`rate='100/m'`) as options of the command."""
    for option in verb.options:
        text = re.sub(rf"\b{option.name}='?([^\s,;']+)'?", rf"{option.flagged} \1", text)
    return text


def _arguments(thing: Thing, many: str) -> list[Decorator]:
    pairs = zip(thing.parameters, thing.metavars, strict=True)
    if many == "jobs":
        return [click.argument(name, metavar=f"[{metavar}]", required=False) for name, metavar in pairs]
    return [click.argument(name, metavar=metavar) for name, metavar in pairs]


def _on_one(verb: Verb, coordinator: Coordinator, as_json_: bool, dry_run: bool, values: Given) -> None:
    acting = {name: values.pop(name) for name in ("why", "by", "ticket")}
    if not dry_run or verb.plan is None:
        return show(verb.act(coordinator, values, acting), as_json_)
    plan = verb.plan(coordinator, values)
    show((asdict(plan), plan_text(plan)) if isinstance(plan, Plan) else ({"plan": [*plan]}, "\n".join(plan)), as_json_)


def _on_jobs(verb: Verb, coordinator: Coordinator, as_json_: bool, dry_run: bool, values: Given) -> None:
    filters = {name: values.pop(name) for name in FILTERS}
    wanted = {name: value for name, value in filters.items() if value not in (None, "", ())}
    yes, job_id = values.pop("yes"), values["job_id"]
    if bool(wanted) == (job_id is not None):
        raise click.UsageError("name one job by its ID, or several by options such as --state and --key")
    if job_id is not None:
        return _on_one(verb, coordinator, as_json_, dry_run, values)
    _on_many(verb, coordinator, as_json_, dry_run, yes, wanted | values)


def _on_lanes(verb: Verb, coordinator: Coordinator, as_json_: bool, dry_run: bool, values: Given) -> None:
    yes = values.pop("yes")
    if values.get("holder") or not values["key"].endswith("*"):
        return _on_one(verb, coordinator, as_json_, dry_run, values)
    _on_many(verb, coordinator, as_json_, dry_run, yes, values)


def _on_many(
    verb: Verb, coordinator: Coordinator, as_json_: bool, dry_run: bool, yes: bool, values: Given
) -> None:  # fmt: skip
    """Act on all things that the options find: ask for confirmation, then act in portions; for --dry-run show the plan.

    The progress goes to stderr: as a bar, or as lines where stderr is no terminal.
    """
    name, thing = cast(BulkVerb, verb.name), verb.thing.kind
    wanted = cast(ActingOn, {key: value for key, value in values.items() if key not in ("job_id", "holder")})
    if verb.thing != LANE:
        filters = cast(JobFilter, {key: value for key, value in wanted.items() if key in FILTERS})
        store = coordinator.store
        wanted |= cast(ActingOn, pinned(store, filters, instant(store.clock().wall)))
    plan = coordinator.plan.act(name, **wanted)
    if dry_run or (plan.complete and not plan.count):
        return show((asdict(plan) if dry_run else {"done": 0}, plan_text(plan)), as_json_)
    if not yes:
        more = "" if plan.complete else " or more"
        click.confirm(f"{name} {counted(plan.count, thing)}{more}?", abort=True, err=True)
    done, total, terminal = 0, 0, sys.stderr.isatty()
    try:
        with click.progressbar(length=plan.count, label=name, file=sys.stderr, hidden=not terminal) as bar:
            for progress in coordinator.act(name, **wanted):
                bar.length = progress.total
                bar.update(progress.done - done)
                done, total = progress.done, progress.total
                if done and not terminal:
                    click.echo(f"{name}: {done} of {progress.total}", err=True)
    except (KeyboardInterrupt, StoreRefused, StoreUnavailable) as error:
        why = str(error) or "stopped"
        done_ = f"{counted(done, thing)} of {plan.count} or more are done"
        said = f"{why}; {name}: {done_}, and the same command does the rest"
        raise Wrong(said) from error
    of = f", of {total} found" if total > done else ""
    show(({"done": done, "found": total}, f"{name}: {counted(done, thing)}{of}"), as_json_)


def show(answer: Answer, as_json_: bool) -> None:
    value, text = answer
    click.echo(as_json(value) if as_json_ else text)


def plan_text(plan: Plan) -> str:
    """Write a plan as a table, and below it the jobs that would start."""
    left = [f"{plan.at_work} at work stay as they are"] if plan.at_work else []
    more = "" if plan.complete else " or more"
    if not plan.count:
        return "\n".join([f"{plan.act} would change nothing{more and ' of what half a second was enough for'}", *left])
    lines = [f"as of {moment(plan.as_of)}:"] if plan.count > 1 else []
    lines += [
        as_table(("would be hit", "state", "becomes"), ((hit.thing, hit.state, hit.becomes) for hit in plan.hits))
    ]
    if plan.count > len(plan.hits):
        lines.append(f"and {plan.count - len(plan.hits)}{more} more")
    left += [f"of the jobs that are to run after these: {said}"] if (said := dependants_text(plan)) else []
    return "\n".join([*lines, *left, f"starts then: {', '.join(plan.starts) or 'nothing'}"])
