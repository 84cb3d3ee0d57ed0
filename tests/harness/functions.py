"""The files of both libraries of Redis Functions, read as text: their steps with headers, and who names whom."""

import re
from typing import NamedTuple

from coordinator.store import library
from tasks.documents.library import text_of

_STEP = re.compile(
    r"^((?:--[^\n]*\n)*)step\.define\('(\w+)', \{([^}]*)\}, function\(([\w, ]*)\)\n(.*?)^end\)$",
    re.MULTILINE | re.DOTALL,
)


RULES = (*library.RULES[:-1], "versions", library.RULES[-1])
STEPS = (*library.STEPS, "document")


class Step(NamedTuple):
    """A step as its file defines it; `header`: the comment lines directly above it, without their dashes."""

    file: str
    name: str
    header: list[str]
    flags: list[str]
    given: str
    body: str

    def says(self, what: str) -> str | None:
        """What stands behind that word at the beginning of a line of the header."""
        return next((line[len(what) + 1 :] for line in self.header if line.startswith(f"{what} ")), None)


def code(text: str) -> str:
    """Without comments and texts."""
    return re.sub(r"'(?:[^'\\\n]|\\.)*'", "''", re.sub(r"--.*", "", text))


def steps_of(file: str) -> list[Step]:
    found = []
    for header, name, flags, given, body in _STEP.findall(text_of(file)):
        lines = [line.removeprefix("--").removeprefix(" ") for line in header.splitlines()]
        found.append(Step(file, name, lines, re.findall(r"'([\w-]+)'", flags), given, body))
    return found


def tables_in(text: str) -> set[str]:
    """The tables of the library that a text names."""
    return {name for name in RULES if re.search(rf"(?<![\w.]){name}\.\w", code(text))}


ALL = [step for file in STEPS for step in steps_of(file)]
NAMES = {step.name for step in ALL}
