"""A command whose module is imported only when the command is called, to keep `coordinator --help` fast."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import click


class Later(click.Command):
    """Stands in a group for the command that `load` imports and returns. `help`: the first sentence of the command's
    help, for the group's list.
    """

    def __init__(self, name: str, help: str, load: Callable[[], click.Command]) -> None:
        super().__init__(name, help=help)
        self._load = load

    @cached_property
    def whole(self) -> click.Command:
        return self._load()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        return self.whole.make_context(info_name, args, parent, **extra)


def whole(command: click.Command) -> click.Command:
    """Return the command for which a `Later` stands; return any other command as it is."""
    return command.whole if isinstance(command, Later) else command
