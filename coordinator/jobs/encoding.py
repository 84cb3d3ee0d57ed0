"""Writes a spec as JSON that can be read back and has at most `max_payload` bytes, and equal arguments as one text.

A caller has Python's values, and a worker that gets the call as a message has those of JSON.
"""

from __future__ import annotations

import json
from datetime import date, time

from kombu.utils.json import dumps, loads

from coordinator.errors import InvalidJob
from coordinator.jobs import chain
from coordinator.jobs.spec import Spec


def encode(task: str, spec: Spec, most: int) -> str:
    """The JSON of a spec, in ASCII. Raises InvalidJob, which names the argument that has no JSON form."""
    try:
        text = str(dumps(spec))
    except (TypeError, ValueError) as error:
        for place, value in chain.all_arguments(spec):
            try:
                dumps(value)
            except (TypeError, ValueError):
                raise InvalidJob(f"{task}: argument {place} is not JSON: {type(value).__name__}") from error
        raise InvalidJob(f"{task}: its options are not JSON: {error}") from error
    if '"__type__"' in text:
        _read_back(task, text)
    return bounded(f"{task}: its arguments have", text, most)


def bounded(what: str, text: str, most: int) -> str:
    """Return the text if it has at most `most` bytes. Raises InvalidJob."""
    if len(text) > most:  # ASCII, as all JSON here
        raise InvalidJob(f"{what} {len(text)} bytes; at most {most} (setting max_payload)")
    return text


def received(value: object) -> object:
    """The value as a task gets it from JSON, with the names in a mapping sorted. What has no JSON stays as it is: the
    submit refuses it by name.
    """
    if type(value) in (str, int, bool):
        return value
    try:
        return loads(in_order(dumps(value)))
    except Exception:
        return value


def in_order(text: str) -> str:
    """The JSON with sorted names, and with 1 for 1.0: the same for equal values."""
    return json.dumps(json.loads(text, parse_float=_number), sort_keys=True)


def text_of(value: object) -> str:
    """The one text of a received value: text and numbers as they are, a time in ISO 8601, all else as JSON."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bool | int | float | list | dict | None):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=text_of)
    return str(value)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _read_back(task: str, text: str) -> None:
    """Refuse a text that kombu cannot read: a dict may look like one of kombu's own encodings."""
    try:
        loads(text)
    except Exception as error:
        raise InvalidJob(f"{task}: its arguments could not be read back from JSON: {error!r}") from error
