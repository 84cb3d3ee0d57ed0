"""The groups of commands of `coordinator …`: of all, the library's and the app's, with the text of their errors."""

from __future__ import annotations

from shlex import quote

import click

from coordinator.cli.session import WHICH_APP, Session, Wrong, session_of
from coordinator.errors import CoordinatorError, InvalidJob, SettingsError, StoreUnavailable
from coordinator.extension import plainly


class Commands(click.Group):
    """The library's commands and the app's. Shows an error that is meant for people in one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in ("-A", "--app"):
                raise click.UsageError("-A goes before the command: coordinator -A APP COMMAND", error.ctx) from error
            raise
        except StoreUnavailable as error:
            hint = "" if error.answered else "Is it running? "
            asked = error.job_id if ctx.invoked_subcommand == "submit" else None
            again = f"; the job may be in line: ask again with --id {quote(asked)}" if asked else ""
            raise Wrong(f"{str(error).rstrip('.')}. {hint}COORDINATOR_URL names it{again}") from error
        except Exception as error:
            said = plainly(error, ctx.obj.extensions if isinstance(ctx.obj, Session) else ())
            if said is error and not isinstance(error, CoordinatorError):
                raise
            wrong = isinstance(said, (InvalidJob, SettingsError, LookupError))  # a LookupError: it is not there
            raise (Wrong if wrong else click.ClickException)(str(said)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        try:
            own = self._of_app(ctx)
        except (click.ClickException, SettingsError) as error:
            click.echo(f"This list lacks the app's own commands: {error}", err=True)
            own = {}
        return sorted([*self.commands, *own])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if command := super().get_command(ctx, name) or self._of_app(ctx).get(name):
            return command
        for group, command in self.commands.items():
            if isinstance(command, click.Group) and name in command.commands:
                raise click.UsageError(f"no command {name!r}; did you mean '{group} {name}'?", ctx)
        if session_of(ctx).app is None:
            raise click.UsageError(f"no command {name!r} here; if it is one of your app's, {WHICH_APP}", ctx)
        return None

    def _of_app(self, ctx: click.Context) -> dict[str, click.Command]:
        session = session_of(ctx)
        own = session.coordinator.extensions if session.app is not None else []
        return {command.name: command for one in own for command in one.commands if command.name}


class ShowByName(click.Group):
    """A group that shows the thing named by its first argument, if that is no command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)
