"""The files of both libraries of Redis Functions, read as text: their steps, and who names whom."""

import re
from typing import NamedTuple

from coordinator.core.store import library
from tasks.documents import library as documents
from tasks.documents.library import text_of

_STEP = re.compile(
    r"^step\.define\('(\w+)', \{([^}]*)\}, function\(([\w,\s]*)\)\n(.*?)^end\)$", re.MULTILINE | re.DOTALL
)


RULES = (*library.RULES[:-1], "versions", library.RULES[-1])
STEPS = (*library.STEPS, "document")


class Step(NamedTuple):
    """A step as its file defines it; `takes`: the names behind the context."""

    file: str
    name: str
    flags: list[str]
    takes: list[str]
    body: str


def code(text: str) -> str:
    """Without comments and texts."""
    return re.sub(r"'(?:[^'\\\n]|\\.)*'", "''", re.sub(r"--.*", "", text))


def steps_of(file: str) -> list[Step]:
    return [
        Step(file, name, re.findall(r"'([\w-]+)'", flags), re.findall(r"\w+", takes)[1:], body)
        for name, flags, takes, body in _STEP.findall(text_of(file))
    ]


def tables_in(text: str) -> set[str]:
    """The tables of the library that a text names."""
    return {name for name in RULES if re.search(rf"(?<![\w.]){name}\.\w", code(text))}


ALL = [step for file in STEPS for step in steps_of(file)]
DECLARED = {step.name: step for step in (*library.DECLARED, *documents.DECLARED)}
NAMES = {step.name for step in ALL}
