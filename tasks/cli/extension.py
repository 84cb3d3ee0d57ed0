"""Adds the commands, the answers of `why` and the dashboard pages of items and components to a coordinator, that of the
service or of an app of your own.

Each command's module is imported when the command is called, to keep `--help` fast.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from coordinator import Extension, Why
from coordinator.extending import Later

if TYPE_CHECKING:
    from coordinator.extending import Pages
    from tasks.components.registry import Registry

HELP = {
    "items": "Show items by what has happened to them, by priority, then age.",
    "components": "Show each component: what it waits for, its last run, what it works on, or why it works on nothing.",
}


def errors(error: Exception) -> Exception | None:
    """Return the exception that the command line prints as one sentence; None: it prints `error` with a traceback."""
    from tasks.errors import plain

    return plain(error)


def batches(components: "Registry | Callable[[], Registry]") -> Extension:
    """Return an Extension with the commands `items` and `components`, `why --item`, and the dashboard pages.

    `components`: the app's components, or a function that returns them, called at the first use.
    """

    def registry() -> "Registry":
        return components() if callable(components) else components

    def items() -> click.Command:
        from tasks.cli.items import items_command

        return items_command(registry())

    def of_components() -> click.Command:
        from tasks.cli.components import components_command

        return components_command(registry())

    def why(item: str) -> Why:
        from tasks.components import look

        return look.why(registry(), item)

    def pages() -> "Pages":
        from tasks.pages import batches as made

        return made.pages(registry())

    commands = (Later("items", HELP["items"], items), Later("components", HELP["components"], of_components))
    return Extension("batches", commands=commands, why={"item": why}, errors=errors, pages=pages)
