"""Checks of what callers give: each raises InvalidJob with the name of the thing and the way out."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator.errors import InvalidJob
from coordinator.store import milliseconds

MAX_KEYS = 16

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_keys(keys: str | Sequence[str]) -> tuple[str, ...]:
    """The keys of a job: 1 to 16 different texts of 1 to 512 bytes without control characters."""
    if not isinstance(keys, Collection):
        raise InvalidJob(f"a key is text, several are a list of texts, not {keys!r}")
    found = (keys,) if isinstance(keys, str) else tuple(keys)
    if not 1 <= len(found) <= MAX_KEYS:
        raise InvalidJob(f"a job has 1 to {MAX_KEYS} keys, not {len(found)}")
    for key in found:
        if not isinstance(key, str) or not printable(key):
            raise InvalidJob(f"a key is text that is not empty, without control characters, not {key!r}")
        if len(key.encode()) > 512:
            raise InvalidJob(f"key {key[:40]!r}… has {len(key.encode())} bytes; at most 512 (hash longer names)")
        if found.count(key) > 1:
            raise InvalidJob(f"key {key!r} is named twice")
    return found


def check_id(job_id: str | None) -> str:
    if job_id is None:
        return str(uuid.uuid4())
    if not isinstance(job_id, str) or not printable(job_id) or len(job_id.encode()) > 512:
        raise InvalidJob(f"job_id {job_id!r}: give 1 to 512 bytes of text without control characters")
    return job_id


def check_node(name: str) -> str:
    if not isinstance(name, str) or not printable(name) or len(name.encode()) > 512:
        raise InvalidJob(f"node {name!r}: give 1 to 512 bytes of text without control characters")
    return name


def moment(name: str, value: Any) -> datetime:
    """Seconds from now, a datetime, or an ISO text."""
    try:
        if isinstance(value, int | float):
            return datetime.now(UTC) + timedelta(seconds=value)
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidJob(f"{name} {value!r} is neither seconds nor a time: {error}") from error


def epoch_ms(moment: datetime) -> int:
    if not isinstance(moment, datetime):
        raise InvalidJob(f"not_before {moment!r} is not a datetime")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return milliseconds(aware.timestamp())


def texts(name: str, values: Any) -> list[str]:
    """Sorted and each once; a single text is no collection of texts."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidJob(f"{name} is a list of texts, not {values!r}")
    return sorted({text(name, value) for value in values})


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not printable(value):
        raise InvalidJob(f"{name} {value!r}: give text that is not empty, without control characters")
    return value


def printable(text: str) -> bool:
    """Not empty, no control characters, and UTF-8 can say it."""
    if text.isascii() and text.isprintable():
        return bool(text)
    return bool(text) and not _CONTROL.search(text) and text.encode(errors="replace").decode() == text


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidJob(f"{name} {value!r}: one of {', '.join(known)}")
    return value


def count(name: str, value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidJob(f"{name} is a whole number from {least}, not {value!r}")
    return value


def priority(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -255 <= value <= 255:
        raise InvalidJob(f"priority is a whole number from -255 to 255 (greater goes first), not {value!r}")
    return value


def group(key: str, value: Any) -> str:
    if not isinstance(value, str) or _CONTROL.search(value):
        raise InvalidJob(f"fair_by gives text without control characters for the key {key!r}, not {value!r}")
    return value


def weight(value: Any) -> str:
    if value != "all":
        raise InvalidJob(f'weight is 1 or "all", not {value!r}')
    return str(value)


def limit(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e10:
        raise InvalidJob(f"{name} is seconds above 0, not {value!r}")
    return float(value)
