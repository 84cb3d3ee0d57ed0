"""A page of a list, and the cursor with which the next one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def page_of(rows: Sequence[T], most: int, name: Callable[[T], str]) -> tuple[list[T], str]:
    """The first `most` rows, and the name of the last of them, "" where none follow. `rows`: one more if there is."""
    return list(rows[:most]), name(rows[most - 1]) if len(rows) > most else ""
