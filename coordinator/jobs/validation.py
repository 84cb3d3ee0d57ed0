"""Checks of what callers give: each raises InvalidJob with the name of the thing and the way out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from coordinator.errors import InvalidJob
from coordinator.jobs.options import Backoff
from coordinator.jobs.spec import Policy
from coordinator.store.times import milliseconds

MAX_KEYS = 16

GRABS = "grab:"  # the ids of grabs will begin so

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TICK = re.compile(r"@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z|run:[^ ]{1,64})\Z")


class OwnId(str):
    """An id of the coordinator's own making, such as a tick's. Callers cannot take such an id: see `is_reserved`."""

    __slots__ = ()


def check_keys(keys: object) -> tuple[str, ...]:
    """The keys of a job: 1 to 16 different texts of 1 to 512 bytes without control characters."""
    if not isinstance(keys, Collection) or isinstance(keys, bytes):
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


def is_id(job_id: object) -> bool:
    """Can a job have this id?"""
    return isinstance(job_id, str) and printable(job_id) and len(job_id.encode()) <= 512


def check_id(job_id: str) -> str:
    if not is_id(job_id):
        raise InvalidJob(f"job_id {shown(job_id)}: give 1 to 512 bytes of text without control characters")
    if is_reserved(job_id) and not isinstance(job_id, OwnId):
        raise InvalidJob(
            f"job_id {job_id!r} is reserved: ids that end with @ and an instant, or with @run:…, are those of ticks, "
            f"and ids that begin with {GRABS!r} are those of grabs; give another one"
        )
    return str(job_id)


def is_reserved(job_id: str) -> bool:
    """Would this id be taken for that of a tick, `<name>@<instant>`, or of a grab?"""
    return job_id.startswith(GRABS) or bool(_TICK.search(job_id))


def check_node(name: str) -> str:
    if not is_id(name):
        raise InvalidJob(f"node {shown(name)}: give 1 to 512 bytes of text without control characters")
    return name


def start(name: str, value: object) -> int | str:
    """Seconds from now, a datetime, or an ISO text, as a step takes it: `+<ms>` from when Redis takes the step, or ms
    since the epoch.
    """
    try:
        if isinstance(value, int | float):
            if not -1e10 < value < 1e10:
                raise ValueError("beyond any calendar")
            return f"+{max(0, milliseconds(value))}"
        return epoch_ms(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))
    except (ValueError, OverflowError) as error:
        raise InvalidJob(f"{name} {value!r} is neither seconds nor a time: {error}") from error


def epoch_ms(moment: datetime) -> int:
    if not isinstance(moment, datetime):
        raise InvalidJob(f"not_before {moment!r} is not a datetime")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return milliseconds(aware.timestamp())


def texts(name: str, values: object) -> list[str]:
    """Sorted and each once; a single text is no collection of texts."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidJob(f"{name} is a list of texts, not {values!r}")
    return sorted({text(name, value) for value in values})


def text(name: str, value: object) -> str:
    if not isinstance(value, str) or not printable(value):
        raise InvalidJob(f"{name} {shown(value)}: give text that is not empty, without control characters")
    return value


def shown(value: object) -> str:
    """A value for a message: its beginning."""
    found = repr(value)
    return found if len(found) <= 200 else f"{found[:200]}…"


def utf8(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidJob(f"{name} {shown(value)} is no text that Redis can keep: {error.reason}") from error


def texts_by_name(name: str, values: object) -> dict[str, list[str] | None]:
    """{name: texts or None}: None is everything."""
    if not isinstance(values, Mapping):
        raise InvalidJob(f"{name} is {{argument: texts}}, not {values!r}")
    return {
        text(name, argument): None if given is None else texts(str(argument), given) or None
        for argument, given in values.items()
    }


def printable(text: str) -> bool:
    """Not empty, no control characters, and UTF-8 can say it."""
    if text.isascii() and text.isprintable():
        return bool(text)
    return bool(text) and not _CONTROL.search(text) and text.encode(errors="replace").decode() == text


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidJob(f"{name} {value!r}: one of {', '.join(known)}")
    return value


def count(name: str, value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidJob(f"{name} is a whole number from {least}, not {value!r}")
    return value


def priority(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -255 <= value <= 255:
        raise InvalidJob(f"priority is a whole number from -255 to 255 (greater goes first), not {value!r}")
    return value


def group(key: str, value: object) -> str:
    if not isinstance(value, str) or (value and not printable(value)):
        raise InvalidJob(f"fair_by gives text without control characters for the key {key!r}, not {value!r}")
    return value


def weight(value: object) -> str:
    if value != "all":
        raise InvalidJob(f'weight is 1 or "all", not {value!r}')
    return str(value)


def limit(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e10:
        raise InvalidJob(f"{name} is seconds above 0, not {value!r}")
    return float(value)


def delays(given: object) -> list[float] | Policy:
    """`retry_delay` as it is kept."""
    if isinstance(given, Backoff):
        return {"first": _delay(given.first, given), "cap": _delay(given.cap, given), "jitter": bool(given.jitter)}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if not given:
            raise InvalidJob("retry_delay is an empty list")
        return [_delay(one, given) for one in given]
    return [_delay(given, given)]


def _delay(seconds: object, given: object) -> float:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e10:
        raise InvalidJob(f"retry_delay is seconds from 0, a list of them, or a Backoff, not {given!r}")
    return seconds


def names_of_errors(name: str, given: object) -> list[str]:
    """Types of exceptions, each as `module.name`."""
    if isinstance(given, Collection) and all(isinstance(one, type) and issubclass(one, BaseException) for one in given):
        return [f"{kind.__module__}.{kind.__qualname__}" for kind in given]
    raise InvalidJob(f"{name} is a list of types of exceptions, not {given!r}")
