"""Writes a spec as JSON that can be read back and has at most `max_payload` bytes."""

from __future__ import annotations

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


def _read_back(task: str, text: str) -> None:
    """Refuse a text that kombu cannot read: a dict may look like one of kombu's own encodings."""
    try:
        loads(text)
    except Exception as error:
        raise InvalidJob(f"{task}: its arguments could not be read back from JSON: {error!r}") from error
