"""Reads fields of a Redis hash. A field with a damaged value raises no error: it is read as missing, and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from kombu.utils.json import loads

from coordinator.core.store.times import instant
from coordinator.core.store.values import ActNote

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
T = TypeVar("T")


class FieldReader:
    """Reads the fields of the record of a job, node or instance. `damaged`: the names of the fields that could not be
    read, and of the `needed` fields that are missing.
    """

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
        """Return the JSON value of the field `name`; None if missing, damaged, or of none of the types `kinds`."""
        return self.get(name, partial(json_in, kinds), None)

    def instant(self, name: str) -> datetime | None:
        return self.get(name, instant, None)

    def act(self, name: str) -> ActNote | None:
        """Return the operator's act that the field `name` keeps (who, when, why); None if there was no such act."""
        if not self.record.get(name):
            return None
        act = self.json(name, dict) or {"why": "the record is damaged"}
        return cast(ActNote, {"why": "", "by": "nobody knows who", "at": 0} | act)


def reader_of(record: Mapping[bytes, bytes]) -> FieldReader:
    return FieldReader({text_in(name): text_in(value) for name, value in record.items()})


def text_in(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def number_in(value: bytes | str | None) -> int | None:
    """Return the whole number in the value of a field; None if the value is missing or damaged."""
    return FieldReader({"number": text_in(value) if isinstance(value, bytes) else value or ""}).get("number", int, None)


def act_in(value: bytes | None) -> ActNote | None:
    """Return the operator's act that the value of a field keeps; None if the value is missing."""
    return FieldReader({"act": text_in(value)}).act("act")


def json_in(kinds: tuple[type, ...], text: str) -> object:
    """Parse JSON. Raises TypeError if the value is of none of the types `kinds`, and ValueError for text that is not
    JSON.
    """
    value = loads(text)
    if kinds and not isinstance(value, kinds):
        raise TypeError(f"the JSON value has the wrong type: {value!r}")
    return value
