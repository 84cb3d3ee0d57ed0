"""Classes of command groups for `coordinator …`: the group of all commands, which also prints their errors, and groups
that show a thing by its name.
"""

from __future__ import annotations

from shlex import quote

import click

from coordinator.errors import CoordinatorError, InvalidJob, SettingsError, StoreUnavailable, UnknownQuota
from coordinator.ops.cli.session import WHICH_APP, Session, Wrong, session_of, with_app
from coordinator.ops.extension import plainly


class Commands(click.Group):
    """The group of all commands: the library's, and those of the app's extensions. An error that is meant for people is
    shown in one line, without a traceback.
    """

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in ("-A", "--app"):
                raise click.UsageError("-A goes before the command: coordinator -A APP COMMAND", error.ctx) from error
            raise
        except click.MissingParameter as error:
            if error.ctx is None or error.ctx.info_name != "quota":
                raise
            look = f"quota declares one; to look at one: {with_app('coordinator quotas NAME')}"
            raise click.UsageError(f"{error.format_message().rstrip('.')}; {look}", error.ctx) from error
        except UnknownQuota as error:
            declare = f"coordinator quota {quote(error.quota)} --concurrency N --why …"
            said = f"nobody declared the quota {error.quota!r}{error.near}: {with_app(declare)} does"
            raise Wrong(said) from error
        except StoreUnavailable as error:
            hint = "" if error.answered else "Is it running? "
            job_id = error.job_id if ctx.invoked_subcommand == "submit" else None
            again = f"; the job may be in line: ask again with --id {quote(job_id)}" if job_id else ""
            named_by = session_of(ctx).coordinator.store.named_by
            raise Wrong(f"{str(error).rstrip('.')}. {hint}{named_by} names this Redis{again}") from error
        except Exception as error:
            plain = plainly(error, ctx.obj.extensions if isinstance(ctx.obj, Session) else ())
            if plain is error and not isinstance(error, CoordinatorError):
                raise
            wrong = isinstance(plain, (InvalidJob, SettingsError, LookupError))  # LookupError: an unknown name
            raise (Wrong if wrong else click.ClickException)(str(plain)) from error

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
    """A group whose first argument may be the name of a thing instead of a command: then `show` shows that thing."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)
