"""The option `coordinate` of a task, read and checked once: the keys of a call, and the options of its submit."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from celery.app.task import Task

from coordinator.errors import InvalidJob, SettingsError
from coordinator.jobs import request, validation
from coordinator.jobs.options import Coordinate, KeyOption, Options
from coordinator.jobs.spec import Signature
from coordinator.keyed_task.keys import Keys

_KNOWN = Coordinate.__annotations__.keys()
_ON_SKIP = ("result", "raise")
_OF_A_CALL = {
    "job_id": "name task_id at the call",
    "not_before": "name eta or countdown at the call",
    "start_at": "it is for a chain",
}

# Options of celery-singleton and celery-once that stand for something here.
_ELSEWHERE = {
    **dict.fromkeys(("unique_on", "keys"), 'name the arguments in the key: {"key": "order/{order_id}"}'),
    **dict.fromkeys(
        ("lock_expiry", "timeout"), "a lane needs none: it is free when its job is over, and max_lifetime ends a job"
    ),
    "graceful": 'when_busy="skip" gives a second call the first one\'s result; on_skip="raise" raises',
    "raise_on_duplicate": 'when_busy="skip" and on_skip="raise"',
    "unlock_before_run": 'when_busy="defer" lets one more call wait',
}

_CHECKS: dict[str, Callable[[object], object]] = {
    "when_busy": lambda given: isinstance(given, Mapping) or validation.one_of("when_busy", given, request.WHEN_BUSY),
    "on_skip": lambda given: validation.one_of("on_skip", given, _ON_SKIP),
    "unknown": lambda given: validation.one_of("unknown", given, request.UNKNOWN),
    "on_failure": lambda given: validation.one_of("on_failure", given, request.ON_FAILURE),
    "priority": validation.priority,
    "weight": lambda given: given == 1 or validation.weight(given),
    "needs": lambda given: validation.texts("needs", given),
    "unite": lambda given: validation.texts_by_name("unite", given),
    "max_attempts": lambda given: validation.count("max_attempts", given),
    "max_losses": lambda given: validation.count("max_losses", given),
    "max_waiting": lambda given: validation.count("max_waiting", given),
    "max_lifetime": lambda given: validation.limit("max_lifetime", given),
    "time_limit": lambda given: validation.limit("time_limit", given),
    "soft_time_limit": lambda given: validation.limit("soft_time_limit", given),
    "retry_delay": validation.delays,
    "retry_on": lambda given: validation.names_of_errors("retry_on", given),
    "rollback": lambda given: request.check_signature(given),
}  # fmt: skip
_NONE_IS_UNSET = ("priority", "max_attempts", "max_losses", "max_waiting", "max_lifetime", "time_limit",
                  "soft_time_limit", "retry_delay", "rollback")  # fmt: skip


@dataclass(frozen=True)
class KeyedTask:
    """One task's option. `raises`: a call that is skipped raises Locked. `usual`: what Celery gives to each call."""

    name: str
    keys: Keys
    options: Options
    raises: bool
    usual: Mapping[str, int | float | None]

    def options_of(self, signature: Signature) -> Options:
        """Those of the option, save those that the call itself names."""
        own = signature.get("options", {})
        named = {name for name, usual in self.usual.items() if own.get(name) not in (None, usual)}
        options = {name: value for name, value in self.options.items() if name not in named}
        if isinstance(by_part := self.options.get("when_busy"), Mapping):
            options["when_busy"] = self._by_key(cast(Mapping[KeyOption, str], by_part), signature)
        return cast(Options, options)

    def _by_key(self, by_part: Mapping[KeyOption, str], signature: Signature) -> dict[object, str]:
        """`skip` wins where two parts give one key."""
        found: dict[object, str] = {}
        for part, keys in self.keys.by_part(signature.get("args") or (), signature.get("kwargs") or {}):
            for key in keys:
                found[key] = "skip" if found.get(key) == "skip" else by_part[part]
        return found

    def keys_of(self, args: Sequence[object] | None, kwargs: Mapping[str, object] | None) -> tuple[str, ...]:
        """The keys of a call with these arguments. Raises InvalidJob, which names the task and the argument."""
        try:
            return validation.check_keys(self.keys.of(args or (), kwargs or {}))
        except InvalidJob as error:
            raise InvalidJob(f"{self.name}: {error}") from error


def read(task: Task) -> KeyedTask | None:
    """The option of this task; None where it has none. Raises SettingsError, which says what is wrong."""
    given = getattr(task, "coordinate", None)
    if given is None or given is False:
        return None
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"task {task.name}: {_origin(task)}.coordinate is {validation.shown(given)}; the coordinator takes this "
            'name for its option, such as {"key": "order/{order_id}"}: call yours otherwise'
        )
    try:
        return _checked(task, given)
    except InvalidJob as error:
        raise SettingsError(f"task {task.name}: coordinate: {error}") from error


def _checked(task: Task, given: Mapping[str, object]) -> KeyedTask:
    for name in given:
        if name not in _KNOWN:
            raise InvalidJob(f"unknown option {name!r}{_way_out(name)}; options: {', '.join(sorted(_KNOWN))}")
    if "key" not in given:
        raise InvalidJob('name the key: {"key": "order/{order_id}"}')
    for name, value in given.items():
        if name != "key" and not (value is None and name in _NONE_IS_UNSET):
            _CHECKS[name](value)
    options = {name: value for name, value in given.items() if name not in ("key", "on_skip")}
    keys = Keys.read(given["key"], inspect.signature(task.run))
    if isinstance(by_part := given.get("when_busy"), Mapping):
        _check_parts(by_part, keys)
    usual = {name: getattr(task, name, None) for name in ("priority", "time_limit", "soft_time_limit")}
    return KeyedTask(task.name, keys, cast(Options, options), given.get("on_skip") == "raise", usual)


def _check_parts(by_part: Mapping[KeyOption, str], keys: Keys) -> None:
    """`when_busy` for each part of the key, as the option has it."""
    if set(by_part) != set(keys.parts):
        names = ", ".join(sorted(repr(part) for part in keys.parts))
        raise InvalidJob(f"when_busy names {sorted(map(repr, by_part))}: name each part of key, and no other: {names}")
    for one in by_part.values():
        validation.one_of("when_busy of a key", one, request.WHEN_BUSY[:2])


def _way_out(name: str) -> str:
    if name in _OF_A_CALL:
        return f" ({_OF_A_CALL[name]})"
    if name in _ELSEWHERE:
        return f" ({_ELSEWHERE[name]})"
    near = difflib.get_close_matches(str(name), _KNOWN, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _origin(task: Task) -> str:
    """The class that has the attribute."""
    owners = (kind for kind in type(task).__mro__ if "coordinate" in vars(kind))
    return next((kind.__qualname__ for kind in owners), type(task).__qualname__)
