"""Makes the keys of a call from its arguments: from templates with the names of arguments, or by functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from coordinator.core.jobs import validation
from coordinator.core.jobs.encoding import received, text_of
from coordinator.core.jobs.options import KeyOption
from coordinator.core.jobs.spec import Signature
from coordinator.errors import InvalidJob

# Of the calls of a task whose body gets a list of them: they may have any arguments.
ANY = inspect.signature(lambda *args, **kwargs: None)
_VARIOUS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_HEADERS = "headers"  # the name for the headers of a call, in a template or as a parameter of a key function
_FIRST = re.compile(r"[^.\[]*")


@dataclass(frozen=True)
class Keys:
    """The checked option `key` of a keyed task. `parts`: templates and functions. `signature`: of the body of the task,
    without `self`.
    """

    parts: tuple[KeyOption, ...]
    signature: inspect.Signature
    option: str = "key"

    @classmethod
    def read(cls, option: object, signature: inspect.Signature, named: str = "key") -> Keys:
        """Check that templates and functions in `option` fit the parameters of the task. `named`: the name of the
        option, `key` or `uses`, for errors. Raises InvalidJob.
        """
        parts = tuple(option) if isinstance(option, list | tuple) else (option,)
        if not parts:
            raise InvalidJob(f"{named} is an empty list")
        for part in parts:
            if isinstance(part, str):
                _check(part, signature, named)
            elif not callable(part):
                raise InvalidJob(f"{named} is text, a function of the arguments, or a list of such, not {part!r}")
        keys = cls(parts, signature, named)
        for part in parts:
            if callable(part):
                keys._check_function(part)
        return keys

    def of(self, call: Signature) -> list[object]:
        """Make the keys of a call, without duplicates. Raises InvalidJob where a key cannot be made."""
        return list(dict.fromkeys(key for _, keys in self.by_part(call) for key in keys))

    def by_part(self, call: Signature) -> list[tuple[KeyOption, list[object]]]:
        """Return each template or function with the keys that it makes for a call. Raises InvalidJob where a key cannot
        be made.
        """
        try:
            bound = self.signature.bind(*(call.get("args") or ()), **(call.get("kwargs") or {}))
        except TypeError as error:
            raise InvalidJob(f"the task does not take these arguments, so the call has no key: {error}") from error
        bound.apply_defaults()
        if any(map(callable, self.parts)):
            self._receive(bound)
        headers: dict[str, object] = {_HEADERS: (call.get("options") or {}).get("headers") or {}}
        return [(part, self._of_part(part, bound, headers)) for part in self.parts]

    def _of_part(self, part: KeyOption, bound: inspect.BoundArguments, headers: dict[str, object]) -> list[object]:
        if isinstance(part, str):
            if self.signature is ANY:
                self._check_named(part, bound.kwargs)
            return [_filled(part, headers | self._named(bound))]
        more = {name: received(value) for name, value in headers.items() if self._takes_headers(part)}
        args, kwargs = (bound.args, bound.kwargs) if self._by_place else ((), self._named(bound))
        try:
            keys: object = part(*args, **more | kwargs)
        except Exception as error:
            raise InvalidJob(f"the key function {_name(part)} raised {error!r}") from error
        if isinstance(keys, set | frozenset):
            return sorted(keys, key=str)
        return list(keys) if isinstance(keys, list | tuple) else [keys]

    def _check_named(self, part: str, kwargs: Mapping[str, object]) -> None:
        for _, field, _, _ in Formatter().parse(part):
            name = _argument(field)
            if name is not None and name not in kwargs and name != _HEADERS:
                raise InvalidJob(
                    f"{self.option} {part!r}: the call has no keyword argument {name!r}. With how='list', the "
                    "arguments of a call are not those of the task: pass it by name, or make the key with a function, "
                    "which gets the arguments as the call has them"
                )

    def _receive(self, bound: inspect.BoundArguments) -> None:
        """Replace each argument by what a worker would receive after JSON, so that a key function returns the same key
        in the caller and in a worker.
        """
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(map(received, value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {word: received(value[word]) for word in sorted(value)}
            else:
                bound.arguments[name] = received(value)

    def _check_function(self, part: Callable[..., object]) -> None:
        """Raise InvalidJob if the key function `part` cannot be called with all arguments of the task by name."""
        if any(parameter.kind in _VARIOUS for parameter in self.signature.parameters.values()) or self._by_place:
            return
        try:
            more = [_HEADERS] if self._takes_headers(part) else []
            inspect.signature(part).bind(**dict.fromkeys([*self.signature.parameters, *more]))
        except TypeError as error:
            names = ", ".join(self.signature.parameters) or "none"
            text = f"the key function {_name(part)} must take the arguments of the task, {names}: {error}"
            raise InvalidJob(text) from error
        except ValueError:  # a function of C may have no signature
            return

    def _takes_headers(self, part: Callable[..., object]) -> bool:
        """True if the function has a parameter for the call's headers, and no argument of the task has that name."""
        try:
            return _HEADERS in inspect.signature(part).parameters and _HEADERS not in self.signature.parameters
        except ValueError:  # a function of C may have no signature
            return False

    @property
    def _by_place(self) -> bool:
        """True if some arguments of the task have no name, so that a key function, too, gets them by position."""
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        return not kinds.isdisjoint({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL})

    def _named(self, bound: inspect.BoundArguments) -> dict[str, object]:
        """The arguments of a call by name, together with those that the task takes as `**kwargs`."""
        named: dict[str, object] = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                named |= value
            else:
                named[name] = value
        return named


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _check(text: str, signature: inspect.Signature, named: str) -> None:
    known = [name for name, parameter in signature.parameters.items() if parameter.kind not in _VARIOUS]
    if text in known:
        one = "lane" if named == "key" else "quota"
        raise InvalidJob(
            f"{named} {text!r} is one {one} for all calls: write '{{{text}}}' for the value of the argument"
        )
    open_ = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidJob(f"{named} {text!r}: {error}") from error
    for _, field, _, _ in parsed:
        name = _argument(field)
        if name == _HEADERS and name not in known and field != name:
            continue
        if name is not None and (not name.isidentifier() or not (name in known or open_)):
            names = ", ".join(known) or "none"
            raise InvalidJob(f"{named} {text!r}: {{{field}}} is no argument of the task; its arguments: {names}")


def _argument(field: str | None) -> str | None:
    """The name of the argument in a field of a template: `order` in `{order[id]}`; None for plain text."""
    match = None if field is None else _FIRST.match(field)
    return match.group() if match else None


class _OfText(Formatter):
    """Fills a template with the arguments of a call, each as a worker would receive it after JSON. Raises InvalidJob
    where a field is None, "", or an object without a text form.
    """

    def get_value(self, key: int | str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        return received(super().get_value(key, args, kwargs))

    def get_field(self, field_name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, object]:
        try:
            value, used = super().get_field(field_name, args, kwargs)
            shown = repr(value)
        except Exception as error:
            raise InvalidJob(f"{{{field_name}}} cannot be read: {error!r}") from error
        if value is None or value == "":
            raise InvalidJob(f"{{{field_name}}} is {value!r}, which cannot be part of a key")
        if not isinstance(value, str | int | float) and shown == object.__repr__(value):
            raise InvalidJob(f"{{{field_name}}} is {validation.shown(value)}, which has no text of its own")
        return value, used

    def convert_field(self, value: object, conversion: str | None) -> object:
        return text_of(value) if conversion == "s" else super().convert_field(value, conversion)

    def format_field(self, value: object, format_spec: str) -> str:
        return str(super().format_field(value, format_spec)) if format_spec else text_of(value)


def _filled(text: str, named: Mapping[str, object]) -> str:
    try:
        return _OfText().vformat(text, (), named)
    except InvalidJob as error:
        raise InvalidJob(f"key {text!r}: {error}") from error
    except Exception as error:
        raise InvalidJob(f"key {text!r} cannot be made: {error!r}") from error
