"""Reads and checks the option `coordinate` of a keyed task, which says what the keys of a call are, and which options
its job gets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from celery.app.task import Task

from coordinator.core.celery_patches.declared import declared
from coordinator.core.jobs import collecting, request, validation
from coordinator.core.jobs.options import KeyedTaskOptions, KeyOption, SubmitOptions
from coordinator.core.jobs.spec import Signature
from coordinator.core.jobs.uses import read_uses
from coordinator.core.keyed_task.keys import ANY, Keys
from coordinator.errors import InvalidJob, SettingsError

T = TypeVar("T")

_KNOWN = KeyedTaskOptions.__annotations__.keys()
_ON_SKIP = ("result", "raise")
# Options of `submit` that a call of a keyed task gives in another way, which the error names.
_OF_A_CALL = {
    "job_id": "name task_id at the call",
    "not_before": "name eta or countdown at the call",
    **dict.fromkeys(("after", "on_failure_of"), "name it in submit(None, task.s(…), after=…)"),
    "start_at": "it is for a chain",
}

# Options of the packages celery-singleton and celery-once, each with what does the same in `coordinate`.
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
    "collect": lambda value: collecting.read_terms(value, 1 << 40),  # what the app's bound is, a call says
    "on_skip": lambda value: validation.one_of("on_skip", value, _ON_SKIP),
    "if_unknown": lambda value: validation.one_of("if_unknown", value, request.UNKNOWN),
    "on_failure": lambda value: validation.one_of("on_failure", value, request.ON_FAILURE),
    "priority": validation.priority,
    "exclusive": lambda value: validation.flag("exclusive", value),
    "needs": lambda value: validation.texts("needs", value),
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
_NONE_IS_UNSET = ("priority", "collect", "max_losses", "max_waiting", "max_lifetime", "time_limit",
                  "soft_time_limit", "retry_delay", "rollback")  # fmt: skip


@dataclass(frozen=True)
class KeyedTask:
    """The checked option `coordinate` of the task `name`. `raises`: a skipped call raises Locked. `usual`: priority and
    time limits in the declaration of the task, which Celery copies into the options of each call.
    """

    name: str
    keys: Keys | None
    uses: TaskUses | None
    options: SubmitOptions
    raises: bool
    usual: Mapping[str, int | float | None]

    def options_of(self, signature: Signature) -> SubmitOptions:
        """The options in `coordinate` for the submit of a call, without those that the call itself sets to another
        value than the task's declaration.
        """
        own = signature.get("options", {})
        named = {name for name, usual in self.usual.items() if own.get(name) not in (None, usual)}
        options = {name: value for name, value in self.options.items() if name not in named}
        if self.uses:
            options["uses"] = self._named(lambda: self.uses and self.uses.of(signature))
        if isinstance(by_part := self.options.get("when_busy"), Mapping):
            options["when_busy"] = self._by_key(cast(Mapping[KeyOption, str], by_part), signature)
        return cast(SubmitOptions, options)

    def _by_key(self, by_part: Mapping[KeyOption, str], signature: Signature) -> dict[object, str]:
        """Turn a `when_busy` that names templates and functions (`by_part`) into one that names the keys of this call.
        Where two of them make the same key, `skip` wins.
        """
        policies: dict[object, str] = {}
        for part, keys in self.keys.by_part(signature) if self.keys else ():
            for key in keys:
                policies[key] = "skip" if policies.get(key) == "skip" else by_part[part]
        return policies

    def keys_of(self, call: Signature) -> tuple[str, ...]:
        """Make the keys of a call; none for a task that only uses quotas. Raises InvalidJob, which names the task, and
        the wrong argument or header.
        """
        keys = self.keys
        return self._named(lambda: validation.check_keys(keys.of(call))) if keys else ()

    def _named(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except InvalidJob as error:
            raise InvalidJob(f"{self.name}: {error}") from error


@dataclass(frozen=True)
class TaskUses:
    """The option `uses` of a task. `amounts`: by template or function, what a call uses of each quota that it names."""

    names: Keys
    amounts: Mapping[KeyOption, object]

    @classmethod
    def read(cls, option: object, signature: inspect.Signature) -> TaskUses:
        """Raises InvalidJob."""
        if isinstance(option, Mapping):
            amounts: Mapping[KeyOption, object] = option
            read_uses({f"quota {number}": amount for number, amount in enumerate(option.values())})
        else:
            parts = cast("list[KeyOption]", option if isinstance(option, list | tuple) else [option])
            amounts = dict.fromkeys(parts, 1)
        if not amounts:
            raise InvalidJob("uses names no quota")
        return cls(Keys.read(list(amounts), signature, "uses"), amounts)

    def of(self, call: Signature) -> dict[str, object]:
        """What a call uses of each quota."""
        return {str(name): self.amounts[part] for part, names in self.names.by_part(call) for name in names}


def read(task: Task) -> KeyedTask | None:
    """Read the option `coordinate` of a task; None if the task does not have it. Raises SettingsError, which names the
    fault.
    """
    option = getattr(task, "coordinate", None)
    if option is None or option is False:
        return None
    if not isinstance(option, Mapping):
        raise SettingsError(
            f"task {task.name}: {_origin(task)}.coordinate is {validation.shown(option)}; the coordinator takes this "
            'name for its option, such as {"key": "order/{order_id}"}: give your attribute another name'
        )
    try:
        return _checked(task, option)
    except InvalidJob as error:
        raise SettingsError(f"task {task.name}: wrong option `coordinate`: {error}") from error


def _checked(task: Task, option: Mapping[str, object]) -> KeyedTask:
    for name in option:
        if name not in _KNOWN:
            raise InvalidJob(f"unknown option {name!r}{_way_out(name)}; options: {', '.join(sorted(_KNOWN))}")
    if "key" not in option and "uses" not in option:
        raise InvalidJob('name the key, {"key": "order/{order_id}"}, or the quotas, {"uses": "api/{tenant}"}')
    if "key" not in option and option.get("when_busy", "queue") != "queue":
        raise InvalidJob("when_busy is about lanes: name the key")
    if option.get("collect") is not None and ("key" not in option or option.get("when_busy", "queue") != "queue"):
        raise InvalidJob("collect gathers the calls of a lane: name the key, and no when_busy")
    for name, value in option.items():
        if name not in ("key", "uses") and not (value is None and name in _NONE_IS_UNSET):
            _CHECKS[name](value)
    options = {name: value for name, value in option.items() if name not in ("key", "uses", "on_skip")}
    signature = inspect.signature(task.run)
    if is_listed(option):
        _check_list(signature)
        signature = ANY
    keys = Keys.read(option["key"], signature) if "key" in option else None
    uses = TaskUses.read(option["uses"], signature) if option.get("uses") is not None else None
    if keys and isinstance(by_part := option.get("when_busy"), Mapping):
        _check_parts(by_part, keys)
    usual = {name: declared(task, name) for name in ("priority", "time_limit", "soft_time_limit")}
    return KeyedTask(task.name, keys, uses, cast(SubmitOptions, options), option.get("on_skip") == "raise", usual)


def _check_list(signature: inspect.Signature) -> None:
    try:
        signature.bind([])
    except TypeError as error:
        raise InvalidJob(f"collect how='list': the task gets one argument, the list of calls: {error}") from error


def is_listed(option: object) -> bool:
    """True if the body of a task with this option `coordinate` gets a list of calls, in place of their arguments."""
    collect = option.get("collect") if isinstance(option, Mapping) else None
    return isinstance(collect, Mapping) and collect.get("how") == "list"


def _check_parts(by_part: Mapping[KeyOption, str], keys: Keys) -> None:
    """Check a `when_busy` that is a mapping: it must name each template and function in `key`. Raises InvalidJob."""
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
    """The name of the class in which the attribute `coordinate` of a task is defined, for an error message."""
    owners = (kind for kind in type(task).__mro__ if "coordinate" in vars(kind))
    return next((kind.__qualname__ for kind in owners), type(task).__qualname__)
