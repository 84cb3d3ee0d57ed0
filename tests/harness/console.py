"""Do the commands of the docs parse? `python -m tests.harness.console` reads them as JSON, and prints the wrong ones.

Click parses those of `coordinator` and `celery` with all of their options, and runs none. `make` has the target, `pip`
the extras, and `python` the file or the module. It runs in a process of its own: the service's commands import its app.
"""

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Sequence

import click
from celery import Celery
from celery.bin.base import CLIContext
from celery.bin.celery import celery
from click.testing import CliRunner

from coordinator.ops.cli.group import Commands
from coordinator.ops.cli.later import whole
from coordinator.ops.cli.main import cli
from tests.harness.snippets import ROOT

_PLACEHOLDER = re.compile(r"[A-Z…|.]+$")


def wrong(command: str) -> str:
    """Why it does not parse, or nothing. `redis-cli` and a shell's own commands are no matter of ours."""
    for part in re.split(r" && |; ", command):
        words = shlex.split(part)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if said := CHECKS.get(words[0], lambda _: "nobody checks this program")(words[1:]):
            return f"{command}: {said}"
    return ""


def _parsed(group: click.Group, args: Sequence[str], obj: object = None) -> str:
    done = CliRunner().invoke(group, args, obj=obj)
    return "" if done.exit_code == 0 else f"{done.output} {done.exception!r}"


def _celery(args: Sequence[str]) -> str:
    return _parsed(celery, args, CLIContext(app=Celery("shop"), no_color=True, workdir=None))


def _make(args: Sequence[str]) -> str:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in args if "=" not in word and word not in targets]
    return f"no target {unknown}" if unknown else ""


def _pip(args: Sequence[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra for word in args for named in re.findall(r"\[(.*)\]", word) for extra in named.split(",")}
    return f"no extra {asked - set(extras)}" if asked - set(extras) else ""


def _python(args: Sequence[str]) -> str:
    if args[0] == "manage.py":  # of docs/django.md
        return _parsed(cli, args[2:]) if args[1] == "coordinator" else ""
    if args[0] != "-m":
        return "" if (ROOT / args[0]).exists() else f"no file {args[0]}"
    if not importlib.util.find_spec(args[1]):
        return f"no module {args[1]}"
    module = importlib.import_module(args[1])
    return _parsed(module.main, args[2:]) if isinstance(getattr(module, "main", None), click.Command) else ""


def unknown(code: str) -> str:
    """A command within a sentence, with placeholders: which of its words nobody knows, or nothing."""
    at: click.Command = cli
    own = _service()
    with click.Context(cli):
        for word in code.split()[1:]:
            if word.startswith("-"):
                those = (
                    at.commands.values() if isinstance(at, click.Group) and at is not cli else []
                )  # `components NAME`
                known = {name for one in (at, *those) for param in one.params for name in param.opts}
                known |= {f"--{kind}" for kind in _KINDS} if at.name == "why" else set()
                if word not in known | {"-h", "--help"}:
                    return f"{code}: no option {word}"
            elif isinstance(at, click.Group):
                found = at.commands.get(word) or (own.get(word) if at is cli else None)
                if found is None and not _PLACEHOLDER.match(word) and not at.invoke_without_command:
                    return f"{code}: no command {word}"
                at = found or at
    return ""


_KINDS = ("member", "item")  # what the service's own extensions explain


def _service() -> dict[str, click.Command]:
    importlib.import_module("tasks.cli.main")
    extensions = importlib.import_module("tasks.app").coordinator.extensions
    return {command.name: whole(command) for extension in extensions for command in extension.commands}


CHECKS: dict[str, Callable[[Sequence[str]], str]] = {
    "coordinator": lambda args: _parsed(cli, args),
    "celery": _celery,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "redis-cli": lambda _: "",
    "export": lambda _: "",
}


def main() -> None:
    asked = json.load(sys.stdin)
    own = _service()
    Commands._of_app = lambda self, ctx: own  # type: ignore[method-assign]
    click.Command.invoke = lambda self, ctx: None  # type: ignore[method-assign]
    found = [*map(wrong, asked["commands"]), *map(unknown, asked["codes"])]
    print("\n".join(filter(None, found)))


if __name__ == "__main__":
    main()
