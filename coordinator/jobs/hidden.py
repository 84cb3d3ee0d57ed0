"""Keeps values of arguments and results from people's eyes, by the names that the setting `hidden` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

HIDDEN = "(hidden)"


class Hidden:
    """Which values are hidden. `parameters` gives the names of the places of a task's arguments, the last of which
    stands for all further ones; None where nobody here knows the task: then all are hidden.

    HIDDEN, the object itself, stands in the place of a hidden value.
    """

    def __init__(self, names: Sequence[str], parameters: Callable[[str], Sequence[str] | None]) -> None:
        self._names = [name.lower() for name in names]
        self._parameters = parameters
        self._known: dict[str, Sequence[str]] = {}
        self.everything = "*" in self._names

    def args(self, task: str, args: Sequence[object], chained: bool = False) -> tuple[object, ...]:
        """`chained`: the result of a step before may go first, so that each argument may stand one place further on."""
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
        """The arguments of a call."""
        return self.args(task, args, chained), {name: self.value(value, name) for name, value in kwargs.items()}

    def value(self, value: object, name: str = "") -> object:
        """The value as people may see it. `name`: its own; the parts of a dict have theirs."""
        if self._has(name):
            return HIDDEN
        if isinstance(value, Mapping):
            parts = {key: self.value(part, str(key)) for key, part in value.items()}
            task, args = value.get("task"), value.get("args")
            if isinstance(task, str) and isinstance(args, list | tuple):  # a signature
                parts["args"] = self.args(task, args, chained=True)
            return parts
        return [self.value(part) for part in value] if isinstance(value, list | tuple) else value

    def text(self, text: str, open_: bool = True) -> str:
        """A text of which no part has a name: it is hidden where one of the names stands in it.

        `open_`: False for one that nobody can read, in which anything may stand.
        """
        return HIDDEN if self._names and (not open_ or self._has(text)) else text

    def _has(self, text: str) -> bool:
        return self.everything or any(name in text.lower() for name in self._names)
