"""Collectors: many calls under one key become one job. Checks the option `collect`, writes the arguments of a call, and
makes those of the body from all calls (functions/rules/collect.lua).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from kombu.utils.json import dumps, loads

from coordinator.core.jobs import validation
from coordinator.core.jobs.encoding import encode, in_order
from coordinator.core.jobs.options import MOST_CALLS, Arguments, CollectOptions
from coordinator.core.jobs.spec import Spec
from coordinator.core.store.times import milliseconds
from coordinator.core.store.values import Json
from coordinator.errors import InvalidJob

HOWS = ("latest", "list", "merge")
EQUAL = "collect"  # the field `equal` of a job that collects

_KNOWN = CollectOptions.__annotations__.keys()


class Call(NamedTuple):
    """The arguments of one call, in the list that the body gets with how="list"."""

    args: list[Json]
    kwargs: dict[str, Json]

    @classmethod
    def of(cls, args: Iterable[object], kwargs: Mapping[str, object]) -> Call:
        return cls(cast(list[Json], list(args)), cast(dict[str, Json], dict(kwargs)))


@dataclass(frozen=True, slots=True)
class Terms:
    """The checked option `collect`. `idle`, `max_wait`: ms; None: no bound."""

    how: str
    idle: int
    max_wait: int | None
    most: int
    most_bytes: int

    def text(self, alike: str) -> str:
        """As the argument `when_busy` of the step job_submit. `alike`: a digest of what the calls must agree in."""
        longest = "-" if self.max_wait is None else self.max_wait
        return f"collect {self.how} {self.idle} {longest} {self.most} {self.most_bytes} {alike}".rstrip()


@dataclass(frozen=True, slots=True)
class Collecting:
    """What a job has collected, or still does.

    `how`: as in `CollectOptions`; `calls`: how many; `open`: it takes more. `most`: calls at most; `max_wait`: seconds
    from its first call until it goes into line at the latest; None: no bound.
    """

    how: str
    calls: int
    open: bool
    most: int
    max_wait: float | None


def collecting_in(terms: str, called: int, equal: str | None) -> Collecting:
    """Read the fields `collect`, `called` and `equal` of a record. Raises ValueError."""
    _, how, _, longest, most, *_ = terms.split(" ")
    return Collecting(how, called, equal == EQUAL, int(most), None if longest == "-" else int(longest) / 1000)


def read_terms(option: object, max_payload: int) -> Terms:
    """Check the option `collect`. Raises InvalidJob, which names the fault."""
    if not isinstance(option, Mapping):
        raise InvalidJob(f"collect is a mapping of {', '.join(_KNOWN)}, not {validation.shown(option)}")
    for name in option:
        if name not in _KNOWN:
            raise InvalidJob(f"collect has no {name!r}{validation.near(str(name), _KNOWN)}; it has {', '.join(_KNOWN)}")
    how = validation.one_of("collect: how", option.get("how", HOWS[0]), HOWS)
    idle = milliseconds(validation.span("collect: idle", option.get("idle", 0)))
    longest = option.get("max_wait")
    max_wait = None if longest is None else milliseconds(validation.span("collect: max_wait", longest))
    if max_wait is not None and idle > max_wait:
        raise InvalidJob(f"collect: idle {option['idle']} is above max_wait {longest}: a job goes at the latest then")
    most = validation.count("collect: most", option.get("most", MOST_CALLS), 1)
    size = option.get("most_bytes")
    most_bytes = max_payload if size is None else validation.count("collect: most_bytes", size, 1)
    if most_bytes > max_payload:
        raise InvalidJob(f"collect: most_bytes is at most {max_payload} (setting max_payload), not {most_bytes}")
    return Terms(how, idle, max_wait, most, most_bytes)


def written(task: str, terms: Terms, arguments: Arguments) -> tuple[str, str]:
    """Return the field `calls` for one call, and the digest of what it must have in common with others. Raises
    InvalidJob where its arguments have no JSON form, or more bytes than the job may have.
    """
    args, kwargs = arguments
    call: Spec = {}
    if args:
        call["args"] = list(args)
    if kwargs:
        call["kwargs"] = dict(kwargs)
    text = encode(task, call, terms.most_bytes, "collect: most_bytes, by default the setting max_payload")
    alike = ""
    if terms.how == "merge":
        rest = {name: value for name, value in kwargs.items() if not _unites(value)}
        names = sorted(name for name in kwargs if name not in rest)
        alike = uuid.uuid5(uuid.NAMESPACE_OID, in_order(dumps([args, rest, names]))).hex
    return f'{{"{terms.how}":[{text}]}}', alike


def given(text: str) -> Arguments:
    """Return the arguments that the body gets, from the field `calls` of a record."""
    [(how, calls)] = cast(Mapping[str, Sequence[Spec]], loads(text)).items()
    if how == "list":
        return [[Call.of(call.get("args", ()), call.get("kwargs", {})) for call in calls]], {}
    kwargs = dict(calls[0].get("kwargs", {}))
    if how == "merge":
        kwargs |= {
            name: _united(call.get("kwargs", {})[name] for call in calls) for name in kwargs if _unites(kwargs[name])
        }
    return list(calls[0].get("args", ())), kwargs


def _unites(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(isinstance(text, str) for text in value))


def _united(parts: Iterable[object]) -> list[str] | None:
    """The texts of all parts, each once, in their order; None, everything, wins."""
    found: dict[str, None] = {}
    for part in cast(Iterable["Sequence[str] | None"], parts):
        if part is None:
            return None
        found |= dict.fromkeys(part)
    return list(found)
