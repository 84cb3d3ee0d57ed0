"""Writes the spec of a job as JSON, and values of arguments so that equal values become equal texts.

That is needed for keys: where a call is submitted by its caller, its arguments are Python values; where a worker gets
the same call as a message, they have been through JSON. Both must make the same key.
"""

from __future__ import annotations

import json
from datetime import date, time

from kombu.utils.json import dumps, loads

from coordinator.core.jobs import chain
from coordinator.core.jobs.spec import Spec
from coordinator.errors import InvalidJob


def encode(task: str, spec: Spec, most: int, bound: str = "setting max_payload") -> str:
    """Write a spec as JSON, in ASCII. Raises InvalidJob where it has more than `most` bytes, which is the `bound` of
    that name, and where an argument has no JSON form or cannot be read back; the error names `task` and the argument.
    """
    try:
        text = str(dumps(spec))
    except (TypeError, ValueError) as error:
        for place, value in chain.all_arguments(spec):
            try:
                dumps(value)
            except (TypeError, ValueError):
                raise InvalidJob(f"{task}: argument {place} is not JSON: {type(value).__name__}") from error
        raise InvalidJob(f"{task}: the options cannot be written as JSON: {error}") from error
    if '"__type__"' in text:
        _read_back(task, text)
    return bounded(f"{task}: its arguments have", text, most, bound)


def bounded(subject: str, text: str, most: int, bound: str = "setting max_payload") -> str:
    """Return the text. Raises InvalidJob, which begins with `subject`, where the text has more than `most` bytes."""
    if len(text) > most:  # kombu writes JSON in ASCII, so that characters are bytes
        raise InvalidJob(f"{subject} {len(text)} bytes; at most {most} ({bound})")
    return text


def received(value: object) -> object:
    """Return the value as it is after it was written as JSON and read back, with the names in mappings sorted. A value
    without a JSON form is returned unchanged: the submit refuses it later, and names the argument.
    """
    if type(value) in (str, int, bool):
        return value
    try:
        return loads(in_order(dumps(value)))
    except Exception:
        return value


def in_order(text: str) -> str:
    """Rewrite a JSON text so that equal values give equal texts: with sorted names, and 1 in place of 1.0."""
    return json.dumps(json.loads(text, parse_float=_number), sort_keys=True)


def text_of(value: object) -> str:
    """Write a value that `received` returned as part of a key: text and numbers as they are, dates and times in ISO
    8601, all else as JSON.
    """
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bool | int | float | list | dict | None):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=text_of)
    return str(value)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _read_back(task: str, text: str) -> None:
    """Raise InvalidJob if kombu cannot read back the JSON `text`: kombu takes a dict with the key `__type__` for its
    own encoding of a value, of a date for example.
    """
    try:
        loads(text)
    except Exception as error:
        raise InvalidJob(f"{task}: its arguments could not be read back from JSON: {error!r}") from error
