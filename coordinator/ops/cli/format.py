"""Writes values as text for people, and as JSON for programs. Where the output is no terminal, no text is cut, so that
it can be searched.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import PurePath
from shlex import quote
from textwrap import wrap
from typing import TypeVar

import click

from coordinator.core.store.times import moment
from coordinator.core.texts import visible

T = TypeVar("T")
_COMMANDS = ("fix: ", "frees it: ")
_LEAST = 9  # characters of a column that is cut


def as_table(heads: Sequence[str], rows: Iterable[Sequence[object]], most: int | None = None) -> str:
    """Write a table: columns two blanks apart, numbers to the right. `most`: characters of a line; None: as many as the
    terminal has, or no bound without a terminal.

    A table that is too wide loses its empty columns, then characters of its widest columns, but never of the first
    column or of instants; text in the last column wraps. If the table is still too wide, each row takes two lines: the
    first column, and below it the others. If even that is too wide, the last columns are left out, and a line below the
    table names them.
    """
    cells = list(rows)
    most = most or width()
    columns = [_Column(head.upper(), values) for head, *values in zip(heads, *cells, strict=True)]
    first, *others = columns
    shown = columns if most is None else _fitting(columns, most)
    if most is not None and any(column not in shown and not column.empty for column in others):
        shown = _fitting(others, most - 2)
        lines = [line for number in range(-1, len(cells)) for line in (first.whole(number), *_lines(shown, number, 2))]
        shown.append(first)
    else:
        lines = [line for number in range(-1, len(cells)) for line in _lines(shown, number)]
    if left_out := [column.head for column in columns if column not in shown and not column.empty]:
        lines.append(f"(no room for {', '.join(left_out)}: --json has all)")
    return "\n".join(lines)


def width() -> int | None:
    """Return the width of the terminal in characters; None where the output is no terminal, so that no line is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(text: str) -> str:
    """Wrap a text at the terminal's width. A line with a command is not wrapped, so that it can be pasted."""
    most, shown = width(), visible(text)
    return shown if most is None else "\n".join(part for line in shown.splitlines() for part in _wrapped(line, most))


def _wrapped(line: str, most: int, indent: int | None = None) -> list[str]:
    """Wrap a line at `most` characters. `indent`: blanks in front of the second and further lines; None: two more than
    the first line has.
    """
    own = len(line) - len(line.lstrip())
    if len(line) <= most or line.lstrip().startswith(_COMMANDS):
        return [line]
    further = " " * (own + 2 if indent is None else indent)
    return wrap(line, most, subsequent_indent=further, break_on_hyphens=False, break_long_words=False)


def _lines(columns: Sequence[_Column], number: int, indent: int = 0) -> list[str]:
    """Return a row of the table as lines: several where the last column wraps. `number`: of the row; -1 is the head."""
    *before, last = columns
    begin = " " * indent + "".join(f"{column.line(number)}  " for column in before)
    first, *more = last.wrapped(number)
    return [f"{begin}{first}".rstrip(), *(" " * len(begin) + part for part in more)]


class _Column:
    """A column of a table: its cells as text, its width, and the least width to which it may be cut."""

    def __init__(self, head: str, values: Sequence[object]) -> None:
        self.head = head
        self._cells = [" ".join(as_text(value).splitlines()) for value in values]
        self._right = bool(values) and all(isinstance(value, int | float | None) for value in values)
        self.empty = bool(values) and all(cell == "-" for cell in self._cells)
        self.width = max(map(len, (head, *self._cells)))
        instants = any(isinstance(value, datetime) for value in values)
        self.least = self.width if instants else min(self.width, _LEAST)

    def whole(self, number: int) -> str:
        """Return the whole cell in row `number`; -1 is the head."""
        return self.head if number < 0 else self._cells[number]

    def wrapped(self, number: int) -> list[str]:
        """Return the cell as wrapped lines if it has blanks, so is prose; otherwise as one line, padded or cut."""
        prose = not self._right and " " in self.whole(number)
        return wrap(self.whole(number), self.width, break_on_hyphens=False) if prose else [self.line(number)]

    def line(self, number: int) -> str:
        """Return the cell, padded or cut to the width of the column."""
        cell = self.whole(number)
        cut = cell if len(cell) <= self.width else f"{cell[: self.width - 1]}…"
        return cut.rjust(self.width) if self._right else cut.ljust(self.width)


def _fitting(columns: list[_Column], most: int) -> list[_Column]:
    """Return the columns that fit into `most` characters, and reduce their widths as far as necessary."""
    if _span([column.width for column in columns]) <= most:
        return columns
    first, *others = columns
    shown = [first, *(column for column in others if not column.empty)]
    first.least = first.width
    while len(shown) > 1 and _span([column.least for column in shown]) > most:
        shown.pop()
    while _span([column.width for column in shown]) > most and len(shown) > 1:
        widest = max(shown[1:], key=lambda column: column.width - column.least)
        if widest.width <= widest.least:
            break
        widest.width -= 1
    return shown


def _span(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def as_pairs(values: Iterable[tuple[str, object]]) -> str:
    """Write each name with its value on a line of its own. Empty values are left out."""
    lines = [(name, as_text(value)) for name, value in values if value not in (None, "", (), [], {})]
    broad = max((len(name) for name, _ in lines), default=0)
    indent, most = " " * (broad + 2), width()
    whole = [f"{name.ljust(broad)}  " + value.replace("\n", f"\n{indent}") for name, value in lines]
    if most is None:
        return "\n".join(whole)
    return "\n".join(part for one in whole for line in one.splitlines() for part in _wrapped(line, most, broad + 2))


def as_text(value: object) -> str:
    if value in (None, "", ()):
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        value = ", ".join(value)
    return visible(str(value) if isinstance(value, str | int | float | PurePath) else as_json(value, None))


def print_list(
    noun: str, rows: Sequence[T], columns: Mapping[str, Callable[[T], object]], as_json_: bool, after: str | None = "",
    value: Callable[[T], object] = lambda row: row, **more: object,
) -> None:  # fmt: skip
    """Print a list as a table, or as JSON: the rows under the name `noun`, and under `after` the cursor of the next
    page, null on the last one. A line on stderr shows the option that gets the next page.

    `columns`: head -> function that returns a row's cell. `value`: returns what JSON shows of a row; `more`: further
    values for JSON.
    """
    if as_json_:
        click.echo(as_json({noun: [_by_name(value(row)) for row in rows], **more, "after": after or None}))
    else:
        click.echo(as_table([*columns], ([cell(row) for cell in columns.values()] for row in rows)))
    if after:
        click.echo(f"more: --after {quote(after)}", err=True)


def columns_of(*names: str, **under: str) -> dict[str, Callable[[object], object]]:
    """Make columns that show attributes of the rows: `names` with the attribute's name as head, `under` as
    head="attribute".
    """
    heads = dict(zip(names, names, strict=True)) | under
    return {head.replace("_", " "): attrgetter(name) for head, name in heads.items()}


def _by_name(value: object) -> object:
    """Turn a named tuple into a dict, since JSON would have it as a list. Other values are returned as they are."""
    return value._asdict() if hasattr(value, "_asdict") else value


def as_json(value: object, indent: int | None = 2) -> str:
    return json.dumps(value, default=_plain, indent=indent, ensure_ascii=False)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
