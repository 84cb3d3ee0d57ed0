"""Checks values that callers pass. Each check returns the value, in the form in which the library keeps it, or raises
InvalidJob, which says what was passed and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import wraps
from inspect import unwrap
from types import FunctionType
from typing import TypeVar, cast, get_args

from coordinator.core.author import Author
from coordinator.core.jobs.options import Backoff
from coordinator.core.jobs.spec import Policy
from coordinator.core.jobs.states import End
from coordinator.core.store.times import milliseconds
from coordinator.core.texts import LONGEST_NAME, REFUSED_CHARACTERS, check_name
from coordinator.core.texts import near as near
from coordinator.errors import InvalidJob

SEPARATOR, _SEEN = "\x1f", "¦"
MAX_KEYS = 16

GRABS = "grab:"  # the beginning of the ids under which processes grab instances

_NO_SUCH = "control characters, ends of lines and turns of the direction of writing"

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REFUSED = re.compile(f"[{REFUSED_CHARACTERS}]")
_TICK = re.compile(r"@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z|run:[^ ]{1,64})(#\d+)?\Z")


class OwnId(str):
    """An id of a job that the library made itself, such as the id of a tick. Ids of this form are refused where a
    caller passes them as plain text; see `is_reserved`.
    """

    __slots__ = ("_calls",)
    _calls: int  # number of calls made under this id; a repeated tick makes them in the same order, with the same ids

    @contextmanager
    def of_call(self) -> Iterator[OwnId]:
        """Yield the id for the next call that is made under the id of a tick: the tick's own id for the first call,
        then `<id>#2`, `<id>#3` and so on. Where the block raises, the next call gets the same id again.
        """
        calls = getattr(self, "_calls", 0)
        yield OwnId(f"{self}#{calls + 1}") if calls else self
        self._calls = calls + 1


def check_keys(keys: object) -> tuple[str, ...]:
    """Return the keys of a job: 1 to 16 different texts of 1 to 512 bytes without control characters. Raises
    InvalidJob.
    """
    if not isinstance(keys, Collection) or isinstance(keys, bytes):
        raise InvalidJob(f"a key is text, several are a list of texts, not {keys!r}")
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if not 1 <= len(names) <= MAX_KEYS:
        raise InvalidJob(f"a job has 1 to {MAX_KEYS} keys, not {len(names)}")
    for key in names:
        if not isinstance(key, str) or not printable(key):
            raise InvalidJob(f"a key is text that is not empty, without {_NO_SUCH}, not {shown(key)}")
        if key.endswith("*") or _SEEN in key:
            raise InvalidJob(
                f"key {key!r}: a text with * at the end names all keys that begin so, and {_SEEN} is kept for grabs"
            )
        if len(key.encode()) > 512:
            raise InvalidJob(f"key {key[:40]!r}… has {len(key.encode())} bytes; at most 512 (hash longer names)")
        if names.count(key) > 1:
            raise InvalidJob(f"key {key!r} is named twice")
    return names


def check_key(key: object) -> str:
    """Return the key of one lane in the form that Redis has. For the lane of a grab, also takes the form that people
    see, with ¦ between its names. Raises InvalidJob.
    """
    if not isinstance(key, str):
        raise InvalidJob(f"give one key, as text, not {shown(key)}; only a submit takes several: submit([…], …)")
    kind, *names = stored_lane(key).split(SEPARATOR)
    if kind == "grab" and len(names) == 2 and all(map(printable, names)):
        return stored_lane(key)
    return check_keys(key)[0]


def stored_lane(text: str) -> str:
    """Turn the key of a lane, or the beginning of one, from the form that people see into the form that Redis has."""
    return text.replace(_SEEN, SEPARATOR)


def shown_lane(text: str) -> str:
    """Turn the key of a lane into the form that people see: for the lane of a grab, with ¦ between its names."""
    return text.replace(SEPARATOR, _SEEN)


def id_of(job: object) -> str:
    """Return the id of a job. `job`: the id, or an object that has it as `id`, such as a Submission or AsyncResult."""
    job_id = getattr(job, "id", job)
    if not isinstance(job_id, str):
        raise InvalidJob(f"name a job by its id or by its Submission, not by {shown(job)}")
    return job_id


def is_id(job_id: object) -> bool:
    """True if the value can be the id of a job: text of 1 to 512 bytes on one line."""
    return isinstance(job_id, str) and printable(job_id) and len(job_id.encode()) <= 512


def check_id(job_id: str) -> str:
    """Return the id that a caller gives to a job. Raises InvalidJob, also for an id of the forms that are reserved."""
    if not is_id(job_id):
        raise InvalidJob(f"job_id {shown(job_id)}: give 1 to 512 bytes of text without {_NO_SUCH}")
    if is_reserved(job_id) and not isinstance(job_id, OwnId):
        raise InvalidJob(
            f"job_id {job_id!r} is reserved: ids that end with @ and an instant, or with @run:…, are those of ticks, "
            f"and ids that begin with {GRABS!r} are those of grabs; give another one"
        )
    return str(job_id)


def is_reserved(job_id: str) -> bool:
    """True if the id has the form of the ids of ticks, `<name>@<instant>`, or of grabs, `grab:…`."""
    return job_id.startswith(GRABS) or bool(_TICK.search(job_id))


def instant_of(job_id: str) -> datetime | None:
    """The instant in the id of a tick; None for any other id."""
    match = _TICK.search(job_id)
    return None if match is None or match[1].startswith("run:") else datetime.fromisoformat(match[1])


def name(what: str, value: object) -> str:
    """Return the name of a task, queue, label or node. Raises InvalidJob for a wrong one; `what`: what the error calls
    it.
    """
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isascii() and value.isprintable():
        return value
    try:
        return check_name(what, value)
    except ValueError as error:
        raise InvalidJob(str(error)) from error


def start(name: str, value: object) -> int | str:
    """Return a time in the form that the functions in Redis read. `value`: seconds from now, a datetime, or ISO text.

    Seconds become `+<ms>`, which Redis adds to its own clock; a time becomes ms since the epoch.
    """
    try:
        if isinstance(value, int | float):
            if not -1e10 < value < 1e10:
                raise ValueError("beyond any calendar")
            return f"+{max(0, milliseconds(value))}"
        return epoch_ms(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))
    except (ValueError, OverflowError) as error:
        raise InvalidJob(f"{name} {value!r} is neither seconds nor a time: {error}") from error


def until(value: object) -> str:
    """Write until when something lasts as the steps read it. `value`: seconds, a datetime, a text of these, or None,
    for which it gives "".
    """
    if value in (None, ""):
        return ""
    if isinstance(value, str):
        with suppress(ValueError):  # seconds, from a command or a form
            value = float(value)
    return str(start("until", value))


def epoch_ms(moment: datetime) -> int:
    """Return a datetime as ms since the epoch; a datetime without a time zone counts as UTC."""
    if not isinstance(moment, datetime):
        raise InvalidJob(f"not_before {moment!r} is not a datetime")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return milliseconds(aware.timestamp())


def texts(name: str, values: object, check: Callable[[str, object], str] | None = None) -> list[str]:
    """Return a collection of texts as a sorted list without duplicates. Refuses a plain text, which Python would take
    for a collection of its characters. `check`: a check of each text, None = `text`.
    """
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidJob(f"{name} is a list of texts, not {values!r}")
    return sorted({(check or text)(name, value) for value in values})


def text(name: str, value: object) -> str:
    if not isinstance(value, str) or not storable(value):
        raise InvalidJob(f"{name} {shown(value)}: give text that is not empty, without control characters")
    return value


def shown(value: object) -> str:
    """The repr of a value, cut to 200 characters for an error message."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def utf8(name: str, value: str) -> bytes:
    """Encode a text for Redis. Raises InvalidJob for a text with lone surrogates, which UTF-8 cannot encode."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidJob(f"{name} {shown(value)} is no text that Redis can keep: {error.reason}") from error


def check_end(to: object) -> End:
    """Return the end of a line at which a job is to be put: `back` or `front`."""
    return cast(End, one_of("to", to, get_args(End)))


def printable(text: str) -> bool:
    """True if the text is not empty, can be encoded in UTF-8, and has no control character, line break or character
    that turns the writing direction, any of which would garble a line of output.
    """
    if text.isascii() and text.isprintable():
        return bool(text)
    return storable(text) and not _REFUSED.search(text)


def storable(text: str) -> bool:
    """True if the text is not empty, can be encoded in UTF-8, and has no ASCII control character."""
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
        raise InvalidJob(f"fair_by must return text without control characters for the key {key!r}, not {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidJob(f"{name} is True or False, not {value!r}")
    return value


def limit(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e10:
        raise InvalidJob(f"{name} is seconds above 0, not {value!r}")
    return float(value)


def span(name: str, value: object, least: float = 0.0) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < 1e10:
        raise InvalidJob(f"{name} is a number of seconds from {least:g}, not {value!r}")
    return value


def delays(option: object) -> list[float] | Policy:
    """Check the option `retry_delay` and return it in the form that the record keeps."""
    if isinstance(option, Backoff):
        return {"first": _delay(option.first, option), "cap": _delay(option.cap, option), "jitter": bool(option.jitter)}
    if isinstance(option, Sequence) and not isinstance(option, str):
        if not option:
            raise InvalidJob("retry_delay is an empty list")
        return [_delay(delay, option) for delay in option]
    return [_delay(option, option)]


def _delay(seconds: object, option: object) -> float:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e10:
        raise InvalidJob(f"retry_delay is seconds from 0, a list of them, or a Backoff, not {option!r}")
    return seconds


def names_of_errors(name: str, types: object) -> list[str]:
    """Return the names of exception types, each as `module.name`. Raises InvalidJob if `types` is anything else."""
    if isinstance(types, Collection) and all(isinstance(it, type) and issubclass(it, BaseException) for it in types):
        return [f"{kind.__module__}.{kind.__qualname__}" for kind in types]
    raise InvalidJob(f"{name} is a list of types of exceptions, not {types!r}")


def any_text(name: str, value: object) -> None:
    """Raise InvalidJob unless the value is a text, which may be empty."""
    if not isinstance(value, str):
        raise InvalidJob(f"{name} is text, not {shown(value)}")
    utf8(name, value)


def _any_text_or_none(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Author):
        any_text(name, value)


def _one_name(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidJob(f"give one name, as text, not {shown(value)}")
    utf8(name, value)


def _number(name: str, value: object) -> None:
    count(name, value, 1)


def _number_or_none(name: str, value: object) -> None:
    if value is not None:
        count(name, value)


def _seconds_or_none(name: str, value: object) -> None:
    if value is not None:
        span(name, value)


def _function(name: str, value: object) -> None:
    if not callable(value):
        raise InvalidJob(f"{name} is a function, not {shown(value)}")


def _many(name: str, value: object) -> None:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise InvalidJob(f"{name} is a list, not {shown(value)}")


# The checks of arguments of public methods, by the name of the parameter.
_OF_CALLS: Mapping[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("prefix", "before", "after", "ticket", "holder", "queue"), any_text),
    **dict.fromkeys(("why", "by", "thing", "token", "using", "edited"), _any_text_or_none),
    **dict.fromkeys(("old", "new", "act", "kind", "id", "request_id"), text),
    "name": _one_name,
    **dict.fromkeys(("make", "fn", "handler"), _function),
    "most": _number,
    "attempt": _number_or_none,
    "upcoming": count,
    "timeout": _seconds_or_none,
    "jobs": _many,
}


def checks_arguments(kind: type[T]) -> type[T]:
    """Class decorator: the public methods check their arguments by the names of their parameters (`_OF_CALLS`), and
    raise InvalidJob for a wrong one.
    """
    for name, call in list(vars(kind).items()):
        if isinstance(call, FunctionType) and not name.startswith("_"):
            code = unwrap(call).__code__
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if not _OF_CALLS.keys().isdisjoint(names):
                setattr(kind, name, _checking(call, names[: code.co_argcount], "after" in names))
    return kind


def _checking(call: Callable[..., object], positional: Sequence[str], pages: bool) -> Callable[..., object]:
    """`pages`: the method takes the place of a page as `after`; else that is an option of a submit, of its own type."""

    @wraps(call)
    def checked(*args: object, **kwargs: object) -> object:
        for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
            if (check := _OF_CALLS.get(name)) and (pages or name != "after"):
                check(name, value)
        return call(*args, **kwargs)

    return checked
