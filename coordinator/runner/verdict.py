"""Computes the outcome of a parked attempt from the ends of its sub-results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from kombu.utils.json import dumps

from coordinator.jobs.spec import Cause, Handles, Part


class End(NamedTuple):
    """How a sub-result ended; `value`: its result if it ended `well`, else its error."""

    well: bool
    value: object


def verdict(handles: Handles, ends: Sequence[End | None], most: int) -> tuple[str, str]:
    """The kind and the detail of the attempt's outcome. `most`: bytes of all results together."""
    ids = handles["ids"]
    bad = [(one, end.value) for one, end in zip(ids, ends, strict=True) if end is not None and not end.well]
    if bad:
        message = f"{len(bad)} of {len(ids)} sub-results failed; {bad[0][0]}: {bad[0][1]}"
        return "raised", error_with_parts({"type": "SubResultFailed", "message": message}, ids, ends, most)
    values = [None if end is None else end.value for end in ends]
    try:
        text = str(dumps(values[0] if handles["one"] else values))
        if len(text) <= most:
            return "succeeded", text
        message = f"its sub-results have {len(text)} bytes; at most {most} (setting max_payload)"
    except (TypeError, ValueError) as error:
        message = f"the result of a sub-result is not JSON: {error}"
    return "failed", dumps({"type": "SubResultFailed", "message": message})


def error_with_parts(error: Cause, ids: Sequence[str | None], ends: Sequence[End | None], most: int) -> str:
    """The error as JSON with the end of each sub-result, without results if these are too long or not JSON."""
    ended = [(one, end) for one, end in zip(ids, ends, strict=True) if one is not None]
    for with_results in (True, False):
        parts = [_part(one, end, with_results) for one, end in ended]
        try:
            text = str(dumps({**error, "parts": parts}))
        except (TypeError, ValueError):
            continue
        if len(text) <= most:
            return text
    return str(dumps(error))


def _part(one: str, end: End | None, with_results: bool) -> Part:
    if end is None:
        return {"id": one}
    if end.well:
        return {"id": one, "result": end.value} if with_results else {"id": one}
    if isinstance(end.value, Mapping):
        kept = {name: end.value[name] for name in ("type", "module", "message") if name in end.value}
        return {"id": one, "error": cast(Cause, kept)}
    kind = type(end.value) if isinstance(end.value, BaseException) else Exception
    return {"id": one, "error": {"type": kind.__name__, "module": kind.__module__, "message": str(end.value)[:4096]}}
