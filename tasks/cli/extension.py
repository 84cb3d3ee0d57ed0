"""What the service adds to the coordinator's commands, answers and pages; `batches` also serves an app of your own."""

from functools import partial
from typing import TYPE_CHECKING

from coordinator import Extension
from tasks.cli.components import components_command
from tasks.cli.items import items_command
from tasks.components import look
from tasks.components.registry import Registry
from tasks.errors import plainly

if TYPE_CHECKING:
    from coordinator.dashboard.extend import Pages


def batches(components: Registry) -> Extension:
    """The commands `items` and `components` for an app's components, `why --item`, and their pages."""

    def pages() -> "Pages":
        from tasks.pages import batches as made  # commands need no page

        return made.pages(components)

    commands = (items_command(components), components_command(components))
    return Extension("batches", commands=commands, why={"item": plainly()(partial(look.why, components))}, pages=pages)
