"""Ends the service's commands with an error in one line, which tells the operator what to mend."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from coordinator import CoordinatorError
from tasks.errors import sentence


@contextmanager
def one_line() -> Iterator[None]:
    try:
        yield
    except (CoordinatorError, BrokenPipeError, click.ClickException):  # these are printed in one line, too
        raise
    except Exception as error:
        if (text := sentence(error)) is None:
            raise
        raise click.ClickException(text) from error


class OneLine(click.Group):
    """A group whose commands end with an error in one line."""

    def invoke(self, ctx: click.Context) -> object:
        with one_line():
            return super().invoke(ctx)
