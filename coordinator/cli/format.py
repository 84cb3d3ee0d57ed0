"""Values as text for people and as JSON for programs. Texts are plain and whole, so that people can search them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from coordinator.store.times import moment

_LEAST = 9  # characters of a column that is cut


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], most: int | None = None) -> str:
    """Columns two blanks apart, with numbers to the right. `most`: characters of a line, by default a terminal's.

    A line that does not fit loses characters of its widest columns, never of the first; then it loses its last columns.
    """
    given = list(rows)
    cells = [[text(value) for value in row] for row in given]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if most is None and sys.stdout.isatty():
        most = shutil.get_terminal_size().columns
    if most is not None and sum(widths) + 2 * (len(widths) - 1) > most:
        widths = _fitting(widths, most)
        cells = [[_cut(cell, width) for cell, width in zip(row, widths, strict=False)] for row in cells]
        heads, given = heads[: len(widths)], [row[: len(widths)] for row in given]
    right = [bool(given) and all(isinstance(row[i], int | float | None) for row in given) for i in range(len(heads))]

    def line(parts: Sequence[str]) -> str:
        aligned = (
            part.rjust(width) if number else part.ljust(width)
            for part, width, number in zip(parts, widths, right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return "\n".join(line(parts) for parts in ([head.upper() for head in heads], *cells))


def _fitting(widths: list[int], most: int) -> list[int]:
    """Widths that fit into so many characters; the last columns may be missing."""
    least = [widths[0], *(min(width, _LEAST) for width in widths[1:])]
    while len(least) > 1 and sum(least) + 2 * (len(least) - 1) > most:
        least.pop()
    found = widths[: len(least)]
    over = sum(found) + 2 * (len(found) - 1) - most
    while over > 0 and len(found) > 1:
        widest = max(range(1, len(found)), key=lambda i: found[i] - least[i])
        if found[widest] <= least[widest]:
            break
        found[widest] -= 1
        over -= 1
    return found


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def pairs(values: Iterable[tuple[str, object]]) -> str:
    """A name and its value a line. Empty values are left out."""
    given = [(name, text(value)) for name, value in values if value not in (None, "", (), {})]
    width = max((len(name) for name, _ in given), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in given)


def text(value: object) -> str:
    if value in (None, "", ()):
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return str(value) if isinstance(value, str | int | float) else as_json(value, None)


def as_json(value: object, indent: int | None = 2) -> str:
    return json.dumps(value, default=_plain, indent=indent, ensure_ascii=False)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
