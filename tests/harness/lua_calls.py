"""Reads the calls between the functions of Lua files: Lua drops what is too much, and gives nil for what lacks.

A parameter that may be left out is named with a question mark in the comment above its function: `delay?: ms …`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_SILENT = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")
_HEAD = re.compile(r"((?:^ *--[^\n]*\n)*)^[^\n-]*?\bfunction\s+([\w.]+)\s*\(([^)]*)\)", re.MULTILINE)
_CALL = re.compile(r"(?<!function )(?<![\w.:])([a-zA-Z_]\w*(?:\.\w+)?)\s*\(")

_SEVERAL = r"(?:unpack|string\.match)\(|\.\.\.$"


class Taken(NamedTuple):
    """How many arguments a function takes at least, and at most."""

    least: int
    most: int


class Call(NamedTuple):
    """`open`: its last argument may be several, as of `unpack`."""

    name: str
    given: int
    open: bool


def wrong_calls(files: Mapping[str, str]) -> list[str]:
    """A sentence for each call of a function that is not there, or that takes another number of arguments.

    `files`: the texts by their names; a file that returns a table returns one of its own name.
    """
    own = {file: _functions(text) for file, text in files.items()}
    tables = {file for file, text in files.items() if text.endswith(f"\nreturn {file}\n")}
    shared = {name: taken for file in tables for name, taken in own[file].items() if name.startswith(f"{file}.")}
    return [said for file, text in files.items() for said in _wrong(file, text, shared | own[file], tables)]


def _wrong(file: str, text: str, known: Mapping[str, Taken], tables: set[str]) -> Iterator[str]:
    for call in calls(text):
        taken, number = known.get(call.name), f"{call.given}{' or more' * call.open}"
        if taken is None:
            if call.name.partition(".")[0] in tables and "." in call.name:
                yield f"{file}: there is no {call.name}"
        elif call.given > taken.most or (call.given < taken.least and not call.open):
            most = "any number of" if taken.most == _ANY else str(taken.most)
            takes = most if taken.least == taken.most else f"{taken.least} to {most}"
            yield f"{file}: {call.name} takes {takes} arguments, and is called with {number}"


_ANY = 1000


def _functions(text: str) -> dict[str, Taken]:
    found = {}
    for comment, name, parameters in _HEAD.findall(text):
        names, optional = re.findall(r"[\w.]+", parameters), set(re.findall(r"(\w+)\?[:,]", comment))
        needed = [one for one in names if one not in optional and one != "..."]
        assert names[: len(needed)] == needed, f"{name}: what may be left out stands last"
        found[name] = Taken(len(needed), _ANY if "..." in names else len(names))
    return found


def calls(text: str) -> Iterator[Call]:
    """The calls by a name, in comments and texts none."""
    source = _SILENT.sub(lambda match: "" if match.group().startswith("--") else "0", text)
    for call in _CALL.finditer(source):
        arguments = list(_arguments(source, call.end()))
        yield Call(call[1], len(arguments), bool(arguments) and bool(re.match(_SEVERAL, arguments[-1])))


def _arguments(source: str, begin: int) -> Iterator[str]:
    """Those of a call whose bracket opens just before `begin`. A function is the last one."""
    depth, start, end = 0, begin, begin
    while depth or source[end] != ")":
        if not depth and source.startswith("function(", end):
            yield "function"
            return
        depth += (source[end] in "([{") - (source[end] in ")]}")
        if not depth and source[end] == ",":
            yield source[start:end].strip()
            start = end + 1
        end += 1
    if last := source[start:end].strip():
        yield last
