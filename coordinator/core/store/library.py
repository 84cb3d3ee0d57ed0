"""Joins the Lua files into one library of Redis Functions, and lists the libraries on a server.

On a Redis server, the names of libraries and functions are the same for all databases and prefixes. So these names
contain a digest of the library's text, and two versions of this package can use one server at the same time. Nothing
removes old libraries automatically.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from coordinator.core.store import steps
from coordinator.core.store.step import Step, declared_in
from coordinator.errors import SettingsError

# The Lua files in the order in which they are joined: each uses only tables of earlier files. A file in `rules` returns
# one table, which gets the name of the file.
RULES = (
    "redis", "base", "record", "sorters", "causes", "states", "history", "audit", "backfills", "ticks", "grabs",
    "retention", "line", "locks", "shares", "classes", "queues", "quotas", "ready", "pace", "wakes", "coalesce",
    "admit", "collect", "alarm", "rings", "settle", "events", "dependants", "cancel", "claim", "nodes", "held",
    "revive", "submit", "pauses", "step",
)  # fmt: skip
STEPS = (
    "clock", "job", "runner", "parked", "lock", "grab", "lane", "quota", "node", "sweep", "sorter", "schedule", "entry",
    "backfill", "retarget", "trail", "trouble", "outbox", "event",
)  # fmt: skip

DECLARED = declared_in(steps)

# Redis finds a Lua global through two tables, which takes a fifth of the time of a step. So the library uses locals. It
# sets them in its first call (functions/rules/step.lua), since globals do not exist yet while Redis loads the library.
GLOBALS = "string, table, math, cjson, ipairs, pairs, type, unpack, tonumber, select, setmetatable, rawget"
LOCALS = f"""local function globals()
  return {GLOBALS}
end
local {GLOBALS}
local function begin()
  {GLOBALS} =
    globals()
end
"""

PREFIX = "coordinator_"
LEAST = (7, 0)


class Library(NamedTuple):
    """A library of Redis Functions. `text`: the Lua code for FUNCTION LOAD. `digest`: of this text, part of the names
    of library and functions.
    """

    name: str
    digest: str
    text: str


class Loaded(NamedTuple):
    """A library of Redis Functions on a server. `digest`: the one in its name; "" for a library of another program.
    `current`: True if this version of the package uses it.
    """

    name: str
    digest: str
    current: bool


def text_of(file: str) -> str:
    """Read `functions/rules/<file>.lua` or `functions/steps/<file>.lua`."""
    folder = "steps" if file in STEPS else "rules"
    path = resources.files("coordinator.core.store").joinpath("functions", folder, f"{file}.lua")
    return path.read_text(encoding="utf-8")


def assemble(
    text_of: Callable[[str], str] = text_of, before: str = "", prefix: str = PREFIX, rules: Sequence[str] = RULES,
    steps: Sequence[str] = STEPS, declared: Iterable[Step[..., object]] = (),
) -> Library:  # fmt: skip
    """Join Lua files into one library. `text_of`: reads a file; `before`: Lua code to put before all files.

    A second library that reuses some of the coordinator's files passes `prefix` (of its name), `rules` and `steps` (the
    names of its files), and `declared` (the declarations of its own steps).
    """
    tables = [f"local {file} = (function()\n{text_of(file)}end)()\n" for file in rules]
    blocks = "".join(f"do\n{text_of(file)}end\n" for file in steps)
    known = {step.name: step for step in (*DECLARED, *declared)}
    rows = "".join(_row(known[name]) for name in re.findall(r"^step\.define\('(\w+)'", blocks, re.MULTILINE))
    body = "".join([before, LOCALS, f"local DECLARED = {{\n{rows}}}\n", *tables, blocks])
    digest = hashlib.sha256(body.encode()).hexdigest()[:12]
    return Library(prefix + digest, digest, f"#!lua name={prefix}{digest}\nlocal DIGEST = '{digest}'\n{body}")


def _row(step: Step[..., object]) -> str:
    """Return the Lua table row that describes a step: how many arguments it takes, their names, and a function that
    unpacks them. Numbers stay texts, since Redis commands take these faster. For the arguments of a parameter with a
    star, the step gets the whole list and the index of the first, so that nothing is copied.
    """
    values = [f"a[{index + 1}]" + " == '1'" * (index in step.flags) for index in range(step.count)]
    values += ["a", str(step.count + 1)] if step.rest else []
    unpack = f"function(a) return {', '.join(values)} end" if values else "function() end"
    head = f"{step.name} = {{count = {step.count}{', rest = true' * step.rest}, values = {unpack},"
    lines = textwrap.wrap(head, 118, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, f"    names = '{' '.join(step.names)}'}},", ""])


@cache
def current() -> Library:
    """Return the library of this version of the package, which is assembled once in a process."""
    return assemble()


def check_server(info: Mapping[str, object], where: str, functions: bool = True) -> None:
    """Raise SettingsError for a server that is too old to have Redis Functions. `info`: the reply to INFO; `where`: the
    address, for the message; `functions`: False if the server has refused the command FCALL as unknown.
    """
    version = str(info.get("redis_version", "0"))  # Valkey gives the version of the Redis that it is compatible with
    if not functions or tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LEAST:
        lacks = "is too old" if functions else "has no functions"
        raise SettingsError(
            f"Redis at {where} has version {version}, which {lacks}: the coordinator needs Redis 7.0 or later, or "
            "Valkey 7.2 or later (for its functions). Upgrade that server, or name another one with COORDINATOR_URL"
        )


def is_missing(error: object) -> bool:
    """True if `error` says that the called function does not exist on the server: its library must be loaded first."""
    return isinstance(error, Exception) and "function not found" in str(error).lower()


def loaded(listed: Iterable[Mapping[bytes, bytes] | Sequence[bytes]], library: Library) -> list[Loaded]:
    """Parse the reply to FUNCTION LIST. `library`: that of this version of the package, which is marked `current`."""
    libraries = []
    for item in listed:
        pairs = item if isinstance(item, Mapping) else dict(zip(item[::2], item[1::2], strict=True))
        name = pairs[b"library_name"].decode()
        digest = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        libraries.append(Loaded(name, digest, name == library.name))
    return sorted(libraries)
