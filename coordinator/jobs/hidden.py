"""Keeps values of arguments and results from people's eyes, by the names that the setting `hidden` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

HIDDEN = "(hidden)"


class Hidden:
    """Which values are hidden. `parameters` gives the names of a task's parameters; none where nobody here knows it.

    `mark` stands in the place of a hidden value.
    """

    def __init__(
        self, names: Sequence[str], parameters: Callable[[str], Sequence[str]], mark: str | None = HIDDEN
    ) -> None:  # fmt: skip
        self._names = [name.lower() for name in names]
        self._parameters = parameters
        self._known: dict[str, Sequence[str]] = {}
        self.mark = mark
        self.everything = "*" in self._names

    def args(self, task: str, args: Sequence[object]) -> tuple[object, ...]:
        if task not in self._known:
            self._known[task] = self._parameters(task)
        names = self._known[task][: len(args)]
        return tuple(self.value(arg, name or "") for name, arg in zip_longest(names, args))

    def value(self, value: object, name: str = "") -> object:
        """The value as people may see it. `name`: its own; the parts of a dict have theirs."""
        if self.everything or any(part in name.lower() for part in self._names):
            return self.mark
        if isinstance(value, Mapping):
            return {key: self.value(part, str(key)) for key, part in value.items()}
        return [self.value(part) for part in value] if isinstance(value, list | tuple) else value

    def text(self, text: str) -> str:
        """A text of which no part has a name: it is hidden where one of the names stands in it."""
        return str(self.mark) if self.everything or any(name in text.lower() for name in self._names) else text
