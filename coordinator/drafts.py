"""What a submit asks for, checked whole before anything is written.

The record's part that only the runner reads is one JSON text, `spec`: {args, kwargs} of a single task or {steps, first}
of an order, and {headers, link, link_error, soft, retry_delay, retry_on, rollback, …}.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from kombu.utils.json import dumps, loads

from coordinator import checks, orders
from coordinator.errors import InvalidJob
from coordinator.settings import Settings
from coordinator.store import Arg, milliseconds

WHEN_BUSY = ("queue", "skip", "defer")
ON_FAILURE = ("release", "hold")

_SPEC = ("link", "link_error", "headers", "shadow", "ignore_result")
_OPTIONS = frozenset(
    (*_SPEC, "queue", "countdown", "eta", "expires", "priority", "task_id", "time_limit", "soft_time_limit")
)


@dataclass(slots=True)  # not frozen: one is made for each submit
class Draft:
    """A checked submit: `script_args` are those of the script job_submit."""

    id: str
    keys: tuple[str, ...]
    when_busy: str
    priority: int
    not_before: int
    room: Arg
    fields: tuple[Arg, ...]

    def script_args(self, delay: int) -> tuple[Arg, ...]:
        return (
            self.id,
            "\n".join(self.keys),
            self.when_busy,
            self.priority,
            self.not_before,
            delay,
            self.room,
            *self.fields,
        )


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy of `retry_delay`: `first` seconds, doubling up to `cap`; with `jitter`, anything from 0 to that."""

    first: float = 1.0
    cap: float = 300.0
    jitter: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a job is to be treated; times are seconds.

    when_busy: `queue` (in line), `skip` (not while it is busy), `defer` (one more: it melts into a job of the same
    keys, task, arguments and place that was not started). priority: -255 to 255, greater goes first. max_attempts:
    calls that may raise (0 and 1: one); where it is not named, a task that retries itself has its own `max_retries`.
    max_losses: runs that may be lost with their process. retry_delay: seconds, a list of them (the last one repeats),
    or a Backoff. retry_on: exceptions that are optimistic conflicts, as `Conflict` is. rollback: a signature, run once
    when a started job will not succeed. on_failure: `release` the lane, or `hold` it for an operator. soft_time_limit:
    raised in the body where the pool gives it the main thread (prefork, solo), as in Celery. max_lifetime: from the
    first taking. max_waiting: refused with LaneFull where so many wait in one of its lanes. start_at: the
    step of a chain to begin with, from 0. needs: labels that its node must have. weight: in a lane with a limit, 1, or
    "all": it runs alone.
    unite: {argument: texts or None}: where a job melts into another, the texts are united; None, everything, wins.
    """

    when_busy: str = "queue"
    job_id: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    max_losses: int | None = None
    retry_delay: float | Sequence[float] | Backoff | None = None
    retry_on: Collection[type[BaseException]] = ()
    rollback: Mapping[str, Any] | None = None
    on_failure: str = "release"
    time_limit: float | None = None
    soft_time_limit: float | None = None
    max_lifetime: float | None = None
    max_waiting: int | None = None
    not_before: datetime | None = None
    start_at: int = 0
    needs: Collection[str] = ()
    weight: int | str = 1
    unite: Mapping[str, Collection[str] | None] = field(default_factory=dict)


_USUAL = Options()


def options_of(given: Mapping[str, Any]) -> Options:
    if not given:
        return _USUAL
    try:
        return Options(**given)
    except TypeError as error:
        known = ", ".join(name.name for name in fields(Options))
        raise InvalidJob(f"{str(error).rpartition('() ')[2]}; options of submit: {known}") from error


@dataclass(frozen=True, slots=True)
class Usual:
    """What a task has unless its signature says otherwise."""

    queue: str
    time_limit: float | None = None
    soft_time_limit: float | None = None


@dataclass(slots=True)  # not frozen: one is made for each submit
class Place:
    """The app that a job belongs to, whether its result is to be stored, and what a signature has usually."""

    app: str
    tell: bool
    usual: Callable[[Mapping[str, Any]], Usual]
    fair_by: Callable[[str], str] | None = None


def draft(
    settings: Settings,
    keys: str | Sequence[str],
    signature: Mapping[str, Any],
    place: Place,
    wanted: Options,
    options: Mapping[str, Any] | None = None,
) -> Draft:
    """Check a submit and lay out its record. options: what `check_signature` found, where it was asked before."""
    options, found = check_signature(signature) if options is None else options, checks.check_keys(keys)
    start = wanted.not_before or _start_of(options)
    when_busy = checks.one_of("when_busy", wanted.when_busy, WHEN_BUSY)
    if start and when_busy != "queue":
        raise InvalidJob(f"when_busy={when_busy!r} looks at the lane now: not with not_before, eta or countdown")
    plan = orders.plan(signature, options, place.app, place.usual, wanted)
    text, first = _encode(signature["task"], _spec(options, plan, place, wanted), settings.max_payload), plan.first
    limits = _limits(settings, first.limit, wanted)
    fields: list[Arg] = ["class", first.kind, "task", first.task, "spec", text, "limits", limits]
    if place.tell or options.get("link") or options.get("link_error"):
        fields += ["tell", 1]
    if when_busy == "defer":
        same = (first.kind, first.task, text, *sorted(wanted.unite), *found)
        fields += ["melt", uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(same)).hex]
    if wanted.unite:
        fields += ["unite", dumps({name: texts or None for name, texts in plan.united.items()})]
    rare = _rare(options, plan, wanted)
    if place.fair_by:
        rare += ["group", checks.group(found[0], place.fair_by(found[0]))]
    if rare:
        fields += ["seldom", 1, *rare]
    number = checks.priority(_first(wanted.priority, options.get("priority")))
    if number:
        fields += ["priority", number]
    room = "" if wanted.max_waiting is None else checks.count("max_waiting", wanted.max_waiting)
    job_id = checks.check_id(_first(wanted.job_id, options.get("task_id")))
    return Draft(job_id, found, when_busy, number, checks.epoch_ms(start) if start else 0, room, tuple(fields))


def _rare(options: Mapping[str, Any], plan: orders.Plan, wanted: Options) -> list[Arg]:
    """What few jobs have: lua/record.lua looks for it only where `seldom` is set."""
    fields: list[Arg] = []
    if plan.number:
        fields += ["step", plan.number]
    if wanted.rollback is not None:
        fields += ["undo", plan.undo]
    if checks.one_of("on_failure", wanted.on_failure, ON_FAILURE) == "hold":
        fields += ["hold", 1]
    if wanted.weight != 1:
        fields += ["weight", checks.weight(wanted.weight)]
    if options.get("expires") is not None:
        fields += ["expires", checks.epoch_ms(checks.moment("expires", options["expires"]))]
    return fields


def _limits(settings: Settings, hard: int, wanted: Options) -> str:
    """The record's `limits` (lua/record.lua)."""
    limits = (
        max(1, checks.count("max_attempts", _first(wanted.max_attempts, 1))),
        checks.count("max_losses", _first(wanted.max_losses, settings.max_losses)),
        hard,
        milliseconds(checks.limit("max_lifetime", wanted.max_lifetime) or settings.max_lifetime),
        milliseconds(settings.keep_success),
        milliseconds(settings.keep_failure),
    )
    return " ".join(map(str, limits))


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value


def _spec(options: Mapping[str, Any], plan: orders.Plan, place: Place, wanted: Options) -> dict[str, Any]:
    spec = plan.spec
    spec |= {name: options[name] for name in _SPEC if options.get(name)}
    for name in ("link", "link_error"):
        if name in spec:
            given = spec[name]  # `set(link=…)` keeps a single one as it is
            spec[name] = list(given) if isinstance(given, list | tuple) else [given]
            for one in spec[name]:
                if not isinstance(one, Mapping) or not isinstance(one.get("task"), str):
                    raise InvalidJob(f"{name} is no signature of a task: {one!r}")
    if wanted.retry_delay is not None:
        spec["retry_delay"] = _delays(wanted.retry_delay)
    if wanted.retry_on:
        spec["retry_on"] = [f"{kind.__module__}.{kind.__qualname__}" for kind in _kinds(wanted.retry_on)]
    if wanted.max_attempts is None:
        spec["free"] = 1
    return spec


def _delays(given: Any) -> Any:
    policy = isinstance(given, Backoff)
    if policy:
        found = [given.first, given.cap]
    else:
        found = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for delay in found:
        if not isinstance(delay, int | float) or isinstance(delay, bool) or not 0 <= delay < 1e10:
            raise InvalidJob(f"retry_delay is seconds from 0, a list of them, or a Backoff, not {given!r}")
    if not found:
        raise InvalidJob("retry_delay is an empty list")
    return {"first": given.first, "cap": given.cap, "jitter": bool(given.jitter)} if policy else found


def _kinds(given: Any) -> Collection[type[BaseException]]:
    if isinstance(given, Collection) and all(isinstance(one, type) and issubclass(one, BaseException) for one in given):
        return given
    raise InvalidJob(f"retry_on is a list of types of exceptions, not {given!r}")


def check_signature(signature: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a signature; what cannot be honoured is refused by name."""
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        raise InvalidJob(f"not a signature of a task: {signature!r}; make one with task.s(…)")
    name = signature["task"]
    kind = signature.get("subtask_type") or (name[7:] if name.startswith("celery.") else "")
    if kind and kind not in ("chain", "group", "chord"):
        raise InvalidJob(f"a {kind} cannot be a job; submit its tasks, or one task that calls them")
    options = {name: value for name, value in (signature.get("options") or {}).items() if value is not None}
    if not options.keys() <= _OPTIONS:
        unknown = ", ".join(sorted(options.keys() - _OPTIONS))
        raise InvalidJob(f"{signature['task']}: a job cannot honour the option {unknown}")
    return options


def _encode(task: str, spec: dict[str, Any], most: int) -> str:
    try:
        text = str(dumps(spec))
    except (TypeError, ValueError) as error:
        for place, value in orders.all_arguments(spec):
            try:
                dumps(value)
            except (TypeError, ValueError):
                raise InvalidJob(f"{task}: argument {place} is not JSON: {type(value).__name__}") from error
        raise InvalidJob(f"{task}: its options are not JSON: {error}") from error
    if '"__type__"' in text:
        _read_back(task, text)
    if len(text.encode()) > most:
        raise InvalidJob(f"{task}: {len(text.encode())} bytes of arguments; at most {most} (setting max_payload)")
    return text


def _read_back(task: str, text: str) -> None:
    """A dict that looks like one of kombu's own encodings may be written, but not read."""
    try:
        loads(text)
    except Exception as error:
        raise InvalidJob(f"{task}: its arguments could not be read back from JSON: {error!r}") from error


def _start_of(options: Mapping[str, Any]) -> datetime | None:
    when = options.get("eta", options.get("countdown"))
    return None if when is None else checks.moment("eta" if "eta" in options else "countdown", when)
