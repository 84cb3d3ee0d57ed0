"""Reads the fields of a hash of Redis. A damaged field raises nothing: it counts as missing, and has a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from kombu.utils.json import loads

from coordinator.store.times import instant
from coordinator.store.values import ActNote

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
T = TypeVar("T")


class FieldReader:
    """Reads the fields of a record. `damaged`: fields that cannot be read, and `needed` fields that are missing."""

    def __init__(self, record: Mapping[str, str], *needed: str) -> None:
        self.record = record
        self.damaged = [name for name in needed if not record.get(name)]

    def get(self, name: str, read: Callable[[str], T], default: T) -> T:
        if not (text := self.record.get(name)):
            return default
        try:
            return read(text)
        except _UNREADABLE:
            self.damaged.append(name)
            return default

    def json(self, name: str, *kinds: type) -> Any:
        """The JSON value of a field; None where it is of none of these types."""
        return self.get(name, partial(json_in, kinds), None)

    def instant(self, name: str) -> datetime | None:
        return self.get(name, instant, None)

    def act(self, name: str) -> ActNote | None:
        """Who did it, when and why; None where nobody did."""
        if not self.record.get(name):
            return None
        act = self.json(name, dict) or {"why": "the record is damaged"}
        return cast(ActNote, {"why": "", "by": "nobody knows who", "at": 0} | act)


def reader_of(record: Mapping[bytes, bytes]) -> FieldReader:
    return FieldReader({text_in(name): text_in(value) for name, value in record.items()})


def text_in(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def number_in(value: bytes | str | None) -> int | None:
    """The whole number in a field; None where it is missing or damaged."""
    return FieldReader({"number": text_in(value) if isinstance(value, bytes) else value or ""}).get("number", int, None)


def act_in(value: bytes | None) -> ActNote | None:
    """The act that a field keeps; None where there is none."""
    return FieldReader({"act": text_in(value)}).act("act")


def json_in(kinds: tuple[type, ...], text: str) -> object:
    """Read JSON. Raises TypeError where it is of none of these types, and ValueError."""
    value = loads(text)
    if kinds and not isinstance(value, kinds):
        raise TypeError(f"it is {value!r}")
    return value
