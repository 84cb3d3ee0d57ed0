"""Values as text for people and as JSON for programs. Texts are plain and whole, so that people can search them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from coordinator.store.times import moment


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns two blanks apart, with numbers to the right."""
    given = list(rows)
    cells = [[text(value) for value in row] for row in given]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [bool(given) and all(isinstance(row[i], int | float | None) for row in given) for i in range(len(heads))]

    def line(parts: Sequence[str]) -> str:
        aligned = (
            part.rjust(width) if number else part.ljust(width)
            for part, width, number in zip(parts, widths, right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return "\n".join(line(parts) for parts in ([head.upper() for head in heads], *cells))


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
