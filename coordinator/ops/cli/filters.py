"""The options that filter jobs. They have the same names as in Python (`JobFilter`) and in the URLs of pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import click

from coordinator.ops.cli.options import option_of
from coordinator.ops.readings import FILTER
from coordinator.ops.search.filter import BAD, STATES
from coordinator.ops.search.reasons import STATES_OF

P = ParamSpec("P")
KNOWN = {"state": (*STATES, BAD), "reason": tuple(STATES_OF)}


def filtered(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options of a job filter to a command, whose function takes them as `**wanted: Unpack[JobFilter]`."""
    for option in reversed(FILTER):
        kind = click.Choice(KNOWN[option.name]) if option.name in KNOWN else None
        command = option_of(option, kind)(command)
    return command
