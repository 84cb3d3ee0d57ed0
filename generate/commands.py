"""docs/commands.md, from the commands themselves."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping

import click

import tasks.cli.main  # noqa: F401  adds its commands
from coordinator.ops.cli.later import whole
from coordinator.ops.cli.main import cli
from tasks.app import coordinator

HEAD = """\
# Commands

`make generated` writes this page from the commands' own help, which
`coordinator COMMAND --help` shows, too.

`coordinator` takes the app as Celery does (`-A shop`), else from `COORDINATOR_APP`, else from the current folder's
`pyproject.toml`, by `app = "shop"` in `[tool.coordinator]`. The library's commands need no app where `COORDINATOR_URL`
is set. `--json` prints JSON, for programs.

A command that changes what is there, a job, lane, quota, group, grab, entry, node, request, member or item, wants
`--why TEXT` (a `--dry-run` none), and takes `--by TEXT`, the author, by default user@host. The history of that thing
keeps both, and `coordinator actions` lists what was done, with the `--ticket` where there is one. A command that looks
has neither, nor has one that puts something in (`submit`, `refresh`), that has work done (`nodelist refresh`,
`components run`), or that clears away what comes back by itself (`libraries remove`, `members forget`).

The JSON of a list has one shape: `{"lanes": [...], "after": null}`. The rows stand under the noun: `jobs`, `lanes`,
`nodes`, `actions`, `quotas`, `weights`, `tenants`, `grabs`, `sorters`, `refused`, `entries` (of `schedule`), `findings`
(of `doctor`), `checks` (of `check-redis`), `libraries`, `members`, `items`, `objects` (of `catalog`), `events`,
`components`, `orphans`, `history`. `after` is the cursor of the next page, for `--after`; null says that this was the
last one, or that there are no pages. `jobs` adds `complete` and `searched`, `checks` adds `verdict`, `quotas` adds
`defaults`, `items` adds `broken`, `events` adds `last`, `tenants` adds what all of them have together, how many `more`
there are, and `complete`. The JSON of one thing is that thing's object, as Python gives it. Instants are texts in UTC.

The exit status is 1 where a command was refused or found something wrong, and 2 where it was called wrongly, names what
is not there, or Redis does not answer. `eval "$(_COORDINATOR_COMPLETE=bash_source coordinator)"` has bash complete
commands and options; zsh and fish have `zsh_source` and `fish_source`.

## At a glance

| command | |
|---|---|
| `status`, `nodes`, `settings` | Redis, nodes and jobs; the living nodes; each setting and its source |
| `doctor`, `metrics` | [what is wrong](doctor.md), and what mends it; [figures for Prometheus](metrics.md) |
| `jobs`, `lanes`, `sorters`, `grabs` | jobs that run and wait; lines; orders that are held; who won each instance |
| `job ID`, `wait ID`, `why ID` | one job; its end; [what is in its way](why.md), and what frees it |
| `submit KEY TASK`, `cancel ID`, `retry ID`, `move ID` | put a job in line, end it, start it again, move it in line |
| `release KEY`, `pause KEY`, `resume KEY` | free a lane, stop it, let it go on |
| `event`, `event NAME`, `event set NAME` | [events](howto/events.md): look, set one |
| `quotas`, `quota NAME`, `drop-quota NAME` | [quotas](lanes.md#quotas): look, declare units and rates, drop them |
| `tenants PREFIX` | [which tenant floods](howto/share-between-tenants.md#which-tenant-floods) |
| `cool-down NAME`, `weight GROUP N` | let a quota start nothing for a time; the share of a group |
| `nodes show NAME`, `nodes drain NAME`, `nodes undrain NAME` | a node in full; take it out without a loss, and back |
| `schedule` | the entries that beats know; pause, skip, run or change one |
| `check-redis URL` | [whether that Redis will do](redis.md#redis-that-others-run), before a node is started |
| `check`, `dashboard` | what of your app will not work; [the pages](dashboard.md) in a browser |

[The service](../tasks/README.md#its-commands) adds its own.
"""
LIBRARY = "The library's commands, for any app:"
SERVICE = "The commands of the service, in its checkout or image, or with `-A tasks`:"


def page() -> str:
    """The whole page."""
    own = {command.name or "": whole(command) for one in coordinator.extensions for command in one.commands}
    return "\n".join([HEAD, *_part("The library", LIBRARY, cli.commands), *_part("The service", SERVICE, own)])


def _part(name: str, said: str, commands: Mapping[str, click.Command]) -> Iterator[str]:
    yield f"## {name}\n\n{said}\n"
    with click.Context(cli, info_name="coordinator") as root:
        for _, command in sorted(commands.items()):
            yield from _section(command, root)


def _section(command: click.Command, root: click.Context) -> Iterator[str]:
    """One command and, below a group, its own commands."""
    yield f"### {command.name}\n"
    yield from _one(command, root)
    if isinstance(command, click.Group):
        with click.Context(command, info_name=command.name, parent=root) as group:
            for _, inner in sorted(command.commands.items()):
                if not inner.hidden:
                    yield from _one(inner, group)


def _one(command: click.Command, parent: click.Context) -> Iterator[str]:
    with click.Context(command, info_name=command.name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        usage = usage.replace(" [OPTIONS]", "").replace(" [ARGS]...", " …")
        yield f"**`{usage}`**\n"
        yield f"{_text(command.help or '')}\n"
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        rows = [found for one in options if one.name != "as_json_" and (found := one.get_help_record(context))]
        if rows:
            yield "| option | |\n|---|---|"
            yield from (f"| `{_cell(name)}` | {_cell(said)} |" for name, said in rows)
            yield ""


def _text(said: str) -> str:
    parts = (" ".join(part.replace("\b", "").split()) for part in inspect.cleandoc(said).split("\n\n"))
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
