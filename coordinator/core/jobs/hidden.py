"""Hides values such as passwords, in arguments and results, from people: those with a name in the setting `hidden`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

HIDDEN = "(hidden)"


class Hidden:
    """Replaces by HIDDEN each value whose name contains one of `names`.

    `parameters(task)` returns the names of the positional parameters of a task, the last of which also stands for all
    further arguments; None where this process does not know the task: then all its positional arguments are hidden. A
    hidden value is the object HIDDEN itself, so that callers can compare by `is`.
    """

    def __init__(self, names: Sequence[str], parameters: Callable[[str], Sequence[str] | None]) -> None:
        self._names = [name.lower() for name in names]
        self._parameters = parameters
        self._known: dict[str, Sequence[str]] = {}
        self.everything = "*" in self._names

    def args(self, task: str, args: Sequence[object], chained: bool = False) -> tuple[object, ...]:
        """Hide values among the positional arguments of a task.

        `chained`: True if the result of an earlier step may be put in front of `args`, so that each argument may belong
        to the next parameter; it is then hidden if either of the two names is.
        """
        if not self._names:
            return tuple(args)
        names = self._known.get(task) or self._parameters(task)
        if names is None:
            return (HIDDEN,) * len(args)
        self._known[task] = names
        return tuple(
            HIDDEN if any(map(self._has, names[(at := min(place, len(names) - 1)) : at + 1 + chained]))
            else self.value(arg) for place, arg in enumerate(args)
        )  # fmt: skip

    def call(
        self, task: str, args: Sequence[object], kwargs: Mapping[str, object], chained: bool = False
    ) -> tuple[tuple[object, ...], dict[str, object]]:  # fmt: skip
        """Hide values among the arguments of a call, and return `args` and `kwargs`; `chained` as in `args`."""
        return self.args(task, args, chained), {name: self.value(value, name) for name, value in kwargs.items()}

    def value(self, value: object, name: str = "") -> object:
        """Return the value with all hidden parts replaced. `name`: of the value; "" where it has none. The parts of a
        dict have their keys as names.
        """
        if self._has(name):
            return HIDDEN
        if isinstance(value, Mapping):
            parts = {key: self.value(part, str(key)) for key, part in value.items()}
            task, args = value.get("task"), value.get("args")
            if isinstance(task, str) and isinstance(args, list | tuple):  # the value is a Celery signature
                parts["args"] = self.args(task, args, chained=True)
            return parts
        return [self.value(part) for part in value] if isinstance(value, list | tuple) else value

    def text(self, text: str, open_: bool = True) -> str:
        """Hide a whole text, such as an error message, if one of the names occurs in it.

        `open_`: False for a text that is encoded or cut, so that names may be in it unseen: hidden if `names` has any.
        """
        return HIDDEN if self._names and (not open_ or self._has(text)) else text

    def _has(self, text: str) -> bool:
        return self.everything or any(name in text.lower() for name in self._names)
