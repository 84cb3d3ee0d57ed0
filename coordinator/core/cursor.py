"""Cuts lists into pages, with a cursor that leads to the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def page_of(rows: Sequence[T], most: int, name: Callable[[T], str]) -> tuple[list[T], str]:
    """Return the first `most` rows, and a cursor for the next page: `name` of the last of these rows, "" if no page
    follows. `rows`: `most` + 1 rows where more exist, which shows that a page follows.
    """
    return list(rows[:most]), name(rows[most - 1]) if len(rows) > most else ""
