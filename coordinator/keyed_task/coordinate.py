"""Reads and checks the option `coordinate` of a task: the keys of a call, and the options of its submit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from celery.app.task import Task

from coordinator.celery_patches.declared import declared
from coordinator.errors import InvalidJob, SettingsError
from coordinator.jobs import request, validation
from coordinator.jobs.options import KeyedTaskOptions, KeyOption, SubmitOptions
from coordinator.jobs.spec import Signature
from coordinator.keyed_task.keys import Keys

_KNOWN = KeyedTaskOptions.__annotations__.keys()
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
    "when_busy": lambda value: isinstance(value, Mapping) or validation.one_of("when_busy", value, request.WHEN_BUSY),
    "on_skip": lambda value: validation.one_of("on_skip", value, _ON_SKIP),
    "if_unknown": lambda value: validation.one_of("if_unknown", value, request.UNKNOWN),
    "on_failure": lambda value: validation.one_of("on_failure", value, request.ON_FAILURE),
    "priority": validation.priority,
    "exclusive": lambda value: validation.flag("exclusive", value),
    "needs": lambda value: validation.texts("needs", value),
    "merge_args": lambda value: validation.texts_by_name("merge_args", value),
    "max_attempts": lambda value: validation.count("max_attempts", value),
    "max_losses": lambda value: validation.count("max_losses", value),
    "max_waiting": lambda value: validation.count("max_waiting", value, 1),
    "max_lifetime": lambda value: validation.limit("max_lifetime", value),
    "time_limit": lambda value: validation.limit("time_limit", value),
    "soft_time_limit": lambda value: validation.limit("soft_time_limit", value),
    "retry_delay": validation.delays,
    "retry_on": lambda value: validation.names_of_errors("retry_on", value),
    "rollback": lambda value: request.check_signature(value),
}  # fmt: skip
_NONE_IS_UNSET = ("priority", "max_losses", "max_waiting", "max_lifetime", "time_limit",
                  "soft_time_limit", "retry_delay", "rollback")  # fmt: skip


@dataclass(frozen=True)
class KeyedTask:
    """The option of a task. `raises`: a skipped call raises Locked. `usual`: options that Celery adds to each call."""

    name: str
    keys: Keys
    options: SubmitOptions
    raises: bool
    usual: Mapping[str, int | float | None]

    def options_of(self, signature: Signature) -> SubmitOptions:
        """The options of a call's submit, without those that the call itself names."""
        own = signature.get("options", {})
        named = {name for name, usual in self.usual.items() if own.get(name) not in (None, usual)}
        options = {name: value for name, value in self.options.items() if name not in named}
        if isinstance(by_part := self.options.get("when_busy"), Mapping):
            options["when_busy"] = self._by_key(cast(Mapping[KeyOption, str], by_part), signature)
        return cast(SubmitOptions, options)

    def _by_key(self, by_part: Mapping[KeyOption, str], signature: Signature) -> dict[object, str]:
        """Return `when_busy` by key; `skip` wins where two parts make the same key."""
        policies: dict[object, str] = {}
        for part, keys in self.keys.by_part(signature):
            for key in keys:
                policies[key] = "skip" if policies.get(key) == "skip" else by_part[part]
        return policies

    def keys_of(self, call: Signature) -> tuple[str, ...]:
        """The keys of a call. Raises InvalidJob, which names the task, and the argument or the header."""
        try:
            return validation.check_keys(self.keys.of(call))
        except InvalidJob as error:
            raise InvalidJob(f"{self.name}: {error}") from error


def read(task: Task) -> KeyedTask | None:
    """Read the option of a task; None where it has none. Raises SettingsError, which names the fault."""
    option = getattr(task, "coordinate", None)
    if option is None or option is False:
        return None
    if not isinstance(option, Mapping):
        raise SettingsError(
            f"task {task.name}: {_origin(task)}.coordinate is {validation.shown(option)}; the coordinator takes this "
            'name for its option, such as {"key": "order/{order_id}"}: call yours otherwise'
        )
    try:
        return _checked(task, option)
    except InvalidJob as error:
        raise SettingsError(f"task {task.name}: coordinate: {error}") from error


def _checked(task: Task, option: Mapping[str, object]) -> KeyedTask:
    for name in option:
        if name not in _KNOWN:
            raise InvalidJob(f"unknown option {name!r}{_way_out(name)}; options: {', '.join(sorted(_KNOWN))}")
    if "key" not in option:
        raise InvalidJob('name the key: {"key": "order/{order_id}"}')
    for name, value in option.items():
        if name != "key" and not (value is None and name in _NONE_IS_UNSET):
            _CHECKS[name](value)
    options = {name: value for name, value in option.items() if name not in ("key", "on_skip")}
    keys = Keys.read(option["key"], inspect.signature(task.run))
    if isinstance(by_part := option.get("when_busy"), Mapping):
        _check_parts(by_part, keys)
    usual = {name: declared(task, name) for name in ("priority", "time_limit", "soft_time_limit")}
    return KeyedTask(task.name, keys, cast(SubmitOptions, options), option.get("on_skip") == "raise", usual)


def _check_parts(by_part: Mapping[KeyOption, str], keys: Keys) -> None:
    """Check a `when_busy` that names each part of the key."""
    if set(by_part) != set(keys.parts):
        names = ", ".join(sorted(repr(part) for part in keys.parts))
        raise InvalidJob(f"when_busy names {sorted(map(repr, by_part))}: name each part of key, and no other: {names}")
    for policy in by_part.values():
        validation.one_of("when_busy of a key", policy, request.WHEN_BUSY[:2])


def _way_out(name: str) -> str:
    if name in _OF_A_CALL:
        return f" ({_OF_A_CALL[name]})"
    if name in _ELSEWHERE:
        return f" ({_ELSEWHERE[name]})"
    return validation.near(name, _KNOWN)


def _origin(task: Task) -> str:
    """The class that has the attribute."""
    owners = (kind for kind in type(task).__mro__ if "coordinate" in vars(kind))
    return next((kind.__qualname__ for kind in owners), type(task).__qualname__)
