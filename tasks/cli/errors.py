"""Ends the service's commands with an error in one line, which tells the operator what to mend."""

import click

from tasks.errors import plainly


class OneLine(click.Group):
    """A group whose commands end with an error in one line."""

    def invoke(self, ctx: click.Context) -> object:
        with plainly():
            return super().invoke(ctx)
