"""One call of `coordinator …`: its app, its coordinator, and the options that many commands have.

`-A` names the app, as for Celery; else COORDINATOR_APP does; else the current folder's pyproject.toml, by `app` in
`[tool.coordinator]`. Without an app, COORDINATOR_URL will do, since the library's commands need only Redis.
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
from functools import cached_property, update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

import click
from celery import Celery
from celery.app.utils import find_app

from coordinator.client.coordinator import Coordinator
from coordinator.extension import Extension

WHICH_APP = "name the app with -A or COORDINATOR_APP"

_OURS = re.compile(r"(^|&& |frees it: |PREFIX=\S+ )coordinator ")

P = ParamSpec("P")
T = TypeVar("T")


def wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM. A signal that the system gives to another thread does not wake this one."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    while not over.wait(0.5):
        pass


class Wrong(click.ClickException):
    """What was called is not there, or Redis does not answer."""

    exit_code = 2


class Session:
    """The app and the coordinator of one call. Imports the app when a command first needs it."""

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
            if ":" in (error.name or ""):  # Celery took the name of the app for one of a module
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
        """Those of a coordinator that is there already."""
        return self.coordinator.extensions if "coordinator" in vars(self) else ()

    def close(self) -> None:
        if "coordinator" in vars(self):  # else there is nothing to close
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
    """The text for people; its commands have the app of this call, so that they can be pasted."""
    root = click.get_current_context().find_root()
    if name := session_of(root).app_name:
        text = text.replace("celery -A APP ", f"celery -A {name} ")
    return _OURS.sub(rf"\1coordinator -A {name} ", text) if root.params.get("app") else text


def listen(address: str, port: int) -> socket.socket:
    """Listen there at once, so that whoever reads the address may connect."""
    try:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        raise Wrong(f"cannot serve at {address}:{port}: {error.strerror}") from error


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")


def paged(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The options of a list that comes in pages of `most`."""

    def add(command: Callable[P, T]) -> Callable[P, T]:
        number, says = click.IntRange(1), "The page behind the one that names this cursor."
        command = click.option("--after", default="", metavar="CURSOR", help=says)(command)
        return click.option("--most", default=most, show_default=True, type=number, help="At most so many.")(command)

    return add


def act_options(command: Callable[P, T]) -> Callable[P, T]:
    """What each act of a person takes, also in an app's own commands."""
    ticket = click.option("--ticket", default="", help="Where people discuss it: a number, or an address.")
    by = click.option("--by", default=_me, help="The author of the act.  [default: user@host]")
    why = click.option("--why", help="The reason, for others to read.", required=True, callback=_reason)
    return why(by(ticket(command)))


def _reason(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("say why: others will read it", ctx, param)
    return text


def with_coordinator(function: Callable[Concatenate[Coordinator, P], None]) -> Callable[P, None]:
    """Pass the command its coordinator as the first argument.

    A group whose subcommand follows is not called, so that the subcommand's --help needs no Redis. A Redis that is too
    old is refused first, since commands that only list would show nothing there.
    """

    @click.pass_context
    def call(ctx: click.Context, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if (subcommand := ctx.invoked_subcommand) is not None:
            if kwargs.get("as_json_"):
                raise click.UsageError(f"--json goes behind the command, if it has one: {ctx.info_name} {subcommand}")
            return
        coordinator = session_of(ctx.find_root()).coordinator
        coordinator.store.check()
        ctx.invoke(function, coordinator, *args, **kwargs)

    return update_wrapper(call, function)
