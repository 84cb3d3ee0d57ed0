"""Makes the options and arguments of commands from the `Option`s that verbs and readings declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from coordinator.core.verbs import Option
from coordinator.errors import InvalidJob

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_of(option: Option, values: click.Choice[str] | None = None) -> Decorator:
    """Return the click decorator for a declared option: an argument if `option.argument` is set, else an option.

    `values`: the possible values, None = those that the declaration has.
    """
    kind: object = values or option.kind
    if option.choices is not None and kind is not bool:
        kind = click.Choice([*option.choices])
    elif kind is int and option.least is not None:
        kind = click.IntRange(int(option.least), None if option.most is None else int(option.most))
    elif kind is list and option.argument:
        return click.argument(option.name, metavar=option.metavar, nargs=-1)
    elif kind in (list, dict, object):
        return click.option(
            f"--{option.name}", callback=_of_json(option), metavar=option.metavar, help=option.help,
            default="[]" if kind is list else "{}" if kind is dict else "null",
        )  # fmt: skip
    if option.argument:
        name = option.placeholder
        return click.argument(option.name, type=kind, metavar=name, required=not name.startswith("["))
    if option.several:
        text = f"{option.help[:-1]}; repeat it for several."
        return click.option(option.flagged, option.name, multiple=True, type=kind, metavar=option.metavar, help=text)
    if kind is bool:
        return click.option(option.flagged, option.name, is_flag=True, help=option.help)
    return click.option(
        option.flagged, option.name, type=kind, default=option.default, metavar=option.metavar, help=option.help,
        show_default=option.default not in (None, ""),
    )  # fmt: skip


def _of_json(option: Option) -> Callable[[click.Context, click.Parameter, str], object]:
    def read(ctx: click.Context, param: click.Parameter, value: str) -> object:
        try:
            return option.of_json(value)
        except InvalidJob as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return read
