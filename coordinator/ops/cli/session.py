"""One call of `coordinator …`: its app, its coordinator, and the options that many commands have.

`-A` names the app, as for Celery. Without `-A`, COORDINATOR_APP names it, or else `app` in the table
`[tool.coordinator]` of the current folder's pyproject.toml. Without an app, COORDINATOR_URL is enough, since the
library's commands need only Redis.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import socket
import sys
import threading
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

import click
from celery import Celery
from celery.app.utils import find_app

from coordinator.coordinator import Coordinator
from coordinator.core.verbs import AFTER, MOST
from coordinator.ops.cli.options import option_of
from coordinator.ops.extension import Extension

WHICH_APP = "name the app with -A or COORDINATOR_APP"

_OURS = re.compile(r"(^|&& |frees it: |PREFIX=\S+ )coordinator ")

P = ParamSpec("P")
T = TypeVar("T")


def wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM. The wait ends every half second to let Python handle signals, since a signal that the
    system delivers to another thread does not interrupt it.
    """
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    while not over.wait(0.5):
        pass


class Wrong(click.ClickException):
    """An error with exit status 2: the call names something that does not exist, or Redis does not answer."""

    exit_code = 2


class Session:
    """The app and the coordinator of one call of `coordinator …`. Imports the app when a command first needs it.

    `named`: the value of `-A`, None without this option.
    """

    def __init__(self, named: str | None) -> None:
        self.app_name = named or os.environ.get("COORDINATOR_APP") or _app_of_folder()

    @cached_property
    def app(self) -> Celery | None:
        if self.app_name is None:
            return None
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)
        try:
            app = find_app(self.app_name)
        except ModuleNotFoundError as error:
            if ":" in (error.name or ""):  # Celery tried to import `module:app` as a module
                raise _no_such(self.app_name) from error
            if not error.name or error.name.split(".")[0] != re.split("[.:]", self.app_name)[0]:
                raise _broken(self.app_name, error) from error
            raise Wrong(f"no app {self.app_name!r} in {here} or on sys.path: {WHICH_APP}") from error
        except AttributeError as error:
            raise Wrong(f"no Celery app in {self.app_name!r} ({error}): {WHICH_APP}") from error
        except Exception as error:
            raise _broken(self.app_name, error) from error
        if not isinstance(app, Celery):
            raise Wrong(f"{self.app_name!r} is {type(app).__name__}, no Celery app: {WHICH_APP}")
        return app

    @cached_property
    def coordinator(self) -> Coordinator:
        if self.app is None:
            if not os.environ.get("COORDINATOR_URL"):
                raise Wrong(f"no app and no Redis: {WHICH_APP}, or the Redis with COORDINATOR_URL")
            return Coordinator()
        coordinator = getattr(self.app, "coordinator", None)
        if not isinstance(coordinator, Coordinator):
            raise Wrong(f"the app {self.app_name!r} has no coordinator: write coordinator = Coordinator(app)")
        return coordinator

    @property
    def extensions(self) -> Sequence[Extension]:
        """The extensions of the coordinator; none if this call has not made a coordinator yet."""
        return self.coordinator.extensions if "coordinator" in vars(self) else ()

    def close(self) -> None:
        if "coordinator" in vars(self):  # otherwise no coordinator was made, and nothing is open
            self.coordinator.close()


def _app_of_folder() -> str | None:
    try:
        with open("pyproject.toml", "rb") as file:
            table = tomllib.load(file).get("tool", {}).get("coordinator", {})
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Wrong(f"pyproject.toml cannot be read: {error}") from error
    return str(table["app"]) if "app" in table else None


def _no_such(named: str) -> Wrong:
    module, _, name = named.partition(":")
    apps = [f"{module}:{it}" for it, app in vars(sys.modules[module]).items() if isinstance(app, Celery)]
    hint = f"it has {', '.join(apps)}" if apps else "it has no Celery app"
    return Wrong(f"there is no {name!r} in the module {module!r}; {hint}: {WHICH_APP}")


def _broken(name: str, error: Exception) -> Wrong:
    return Wrong(f"the app {name!r} cannot be imported: {type(error).__name__}: {error}")


def session_of(ctx: click.Context) -> Session:
    if ctx.obj is None:
        ctx.obj = Session(ctx.params.get("app"))
        ctx.call_on_close(ctx.obj.close)
    return ctx.obj  # type: ignore[no-any-return]


def with_app(text: str) -> str:
    """Put the app of this call into the commands in a text, so that they can be pasted: into each `celery -A APP`, and,
    if this call has `-A`, into each `coordinator …`.
    """
    root = click.get_current_context().find_root()
    if name := session_of(root).app_name:
        text = text.replace("celery -A APP ", f"celery -A {name} ")
    return _OURS.sub(rf"\1coordinator -A {name} ", text) if root.params.get("app") else text


def listen(address: str, port: int) -> socket.socket:
    """Open a listening socket. A command does this before it prints the address, so that a reader can connect at once.

    Raises Wrong where the address or port cannot be used.
    """
    try:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        raise Wrong(f"cannot serve at {address}:{port}: {error.strerror}") from error


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")


def paged(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that adds the options `--most` (with this default) and `--after` to a command that lists."""

    def add(command: Callable[P, T]) -> Callable[P, T]:
        return option_of(replace(MOST, default=most, most=None))(option_of(AFTER)(command))

    return add


def act_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the options of each operator's act: `--why`, `--by` and `--ticket`. An app's commands can use this, too."""
    ticket = click.option("--ticket", default="", help="Where people discuss the act: a number, or an address.")
    by = click.option("--by", default=_me, help="The author of the act.  [default: user@host]")
    why = click.option("--why", help="The reason, for others to read.", required=True, callback=_reason, cls=_Reason)
    return why(by(ticket(command)))


class _Reason(click.Option):
    """The option `--why`, which a dry run may leave out. Click reads the options that are given before the others."""

    def process_value(self, ctx: click.Context, value: object) -> object:
        if ctx.params.get("dry_run") and self.value_is_missing(value):
            return ""
        return super().process_value(ctx, value)


def _reason(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("give a reason (--why): it is kept in the audit trail", ctx, param)
    return text


def with_coordinator(function: Callable[Concatenate[Coordinator, P], None]) -> Callable[P, None]:
    """Pass the coordinator of this call to a command's function, as the first argument.

    The function of a group is not called if a subcommand follows, so that the subcommand's --help needs no Redis. A
    Redis that is too old raises an error first, since commands that only list would show an empty list there.
    """

    @click.pass_context
    def call(ctx: click.Context, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if (subcommand := ctx.invoked_subcommand) is not None:
            if kwargs.get("as_json_"):
                raise click.UsageError(f"--json goes behind the subcommand: {ctx.info_name} {subcommand} --json")
            return
        coordinator = session_of(ctx.find_root()).coordinator
        coordinator.store.connections.call_it("command", socket.gethostname())
        coordinator.store.check()
        ctx.invoke(function, coordinator, *args, **kwargs)

    return update_wrapper(call, function)
