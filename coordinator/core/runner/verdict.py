"""Computes the outcome of a parked attempt, once all its sub-results have ended, from their results and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from kombu.utils.json import dumps

from coordinator.core.jobs.spec import ErrorRecord, Handles, SubResultEnd

_MOST = 4096  # bytes of an exception's arguments as JSON; longer ones are not stored


class End(NamedTuple):
    """How a sub-result ended; `value`: its result if it ended `well`, else its error."""

    well: bool
    value: object


def verdict(handles: Handles, ends: Sequence[End | None], most: int) -> tuple[str, str]:
    """Return the kind (succeeded, raised or failed) and the detail (JSON) of a parked attempt's outcome.

    `ends`: how each sub-result in `handles` ended, None for a skipped job. `most`: the largest length of the detail in
    bytes; results that are longer together make the attempt fail.
    """
    ids = handles["ids"]
    bad = [(part_id, end.value) for part_id, end in zip(ids, ends, strict=True) if end is not None and not end.well]
    if bad:
        cause = _error_of(bad[0][1])
        if not handles["one"]:
            message = f"{len(bad)} of {len(ids)} sub-results failed; {bad[0][0]}: {cause.get('message')}"
            cause = {"type": "SubResultFailed", "message": message}
        return "raised", error_with_parts(cause, ids, ends, most)
    values = [None if end is None else end.value for end in ends]
    try:
        text = str(dumps(values[0] if handles["one"] else values))
        if len(text) <= most:
            return "succeeded", text
        message = f"its sub-results have {len(text)} bytes; at most {most} (setting max_payload)"
    except (TypeError, ValueError) as error:
        message = f"the result of a sub-result is not JSON: {error}"
    return "failed", dumps({"type": "SubResultFailed", "message": message})


def error_with_parts(error: ErrorRecord, ids: Sequence[str | None], ends: Sequence[End | None], most: int) -> str:
    """Encode the error of a parked attempt as JSON, with the id and the result or error of each sub-result. If the
    text is longer than `most`, or a result is not JSON, the results are left out, and then also the errors.
    """
    ended = [(part_id, end) for part_id, end in zip(ids, ends, strict=True) if part_id is not None]
    for with_results in (True, False):
        parts = [_part(part_id, end, with_results) for part_id, end in ended]
        try:
            text = str(dumps({**error, "parts": parts}))
        except (TypeError, ValueError):
            continue
        if len(text) <= most:
            return text
    return str(dumps(error))


def _part(part_id: str, end: End | None, with_results: bool) -> SubResultEnd:
    if end is None:
        return {"id": part_id}
    if end.well:
        return {"id": part_id, "result": end.value} if with_results else {"id": part_id}
    return {"id": part_id, "error": _error_of(end.value)}


def _error_of(value: object) -> ErrorRecord:
    """Make the ErrorRecord of a failed sub-result from `value`: a dict from a job's record, or the exception that a
    result backend stored.
    """
    if isinstance(value, Mapping):
        return cast(ErrorRecord, {name: value[name] for name in ("type", "module", "message", "args") if name in value})
    error = value if isinstance(value, BaseException) else Exception(value)
    return described(error, str(error)[:4096])


def described(error: BaseException, message: str) -> ErrorRecord:
    """Make the ErrorRecord of an exception, with the text `message`. The exception's arguments are stored, too, if they
    are more than that text and at most 4096 bytes as JSON.
    """
    kind = type(error)
    cause: ErrorRecord = {"type": kind.__name__, "module": kind.__module__, "message": message}
    if error.args != (message,):
        with suppress(Exception):
            if len(dumps(error.args)) <= _MOST:
                cause["args"] = list(error.args)
    return cause
