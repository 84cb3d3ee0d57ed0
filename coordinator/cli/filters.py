"""The options that filter jobs: the same names as in Python and in the addresses of pages (`JobFilter`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import click

from coordinator.jobs.search import STATES

P = ParamSpec("P")

_HELP = {
    "task": "Only jobs of this task.",
    "key": "Only jobs of this lane; K*: of all lanes whose keys begin so.",
    "since": "Only what ended since then, or was submitted where it is not over: 90s, 1h, 2d, or an instant, in UTC.",
    "until": "Only what ended, or was submitted, until then.",
    "node": "Only jobs that ran on this node last.",
    "error": "Only jobs whose error has this in its type or message.",
    "text": "Only jobs that have this in an argument.",
}


def filtered(command: Callable[P, None]) -> Callable[P, None]:
    """Give a command the options of a filter; it takes them as `**wanted: Unpack[JobFilter]`."""
    for name, text in reversed(_HELP.items()):
        command = click.option(f"--{name}", default="", help=text)(command)
    state = "Only jobs in this state; repeat it for several."
    return click.option("--state", multiple=True, type=click.Choice(STATES), help=state)(command)
