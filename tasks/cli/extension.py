"""What the batches add to the coordinator's commands, answers and pages; it also serves an app of your own.

Its modules are imported when they are called: the list of commands needs none.
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
    """The error for people."""
    from tasks.errors import plain

    return plain(error)


def batches(components: "Registry | Callable[[], Registry]") -> Extension:
    """The commands `items` and `components` for an app's components, `why --item`, and their pages."""

    def here() -> "Registry":
        return components() if callable(components) else components

    def items() -> click.Command:
        from tasks.cli.items import items_command

        return items_command(here())

    def of_components() -> click.Command:
        from tasks.cli.components import components_command

        return components_command(here())

    def why(item: str) -> Why:
        from tasks.components import look

        return look.why(here(), item)

    def pages() -> "Pages":
        from tasks.pages import batches as made

        return made.pages(here())

    commands = (Later("items", HELP["items"], items), Later("components", HELP["components"], of_components))
    return Extension("batches", commands=commands, why={"item": why}, errors=errors, pages=pages)
