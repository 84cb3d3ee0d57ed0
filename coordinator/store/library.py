"""Assembles the Lua files into one library of Redis Functions, and lists the libraries on a server.

Redis shares libraries and the names of their functions among all databases and prefixes. So both contain the digest of
the library's text, and two versions of this package work side by side on one Redis. Nothing removes old libraries
automatically.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from coordinator.errors import SettingsError

# Bottom up: each file uses only tables of earlier files. A file of rules returns one table, which has the file's name.
RULES = (
    "redis", "base", "record", "sorters", "states", "history", "audit", "ticks", "grabs", "retention", "line", "locks",
    "classes", "ready", "pace", "wakes", "coalesce", "admit", "rings", "settle", "cancel", "claim", "nodes",
    "held", "submit", "step",
)  # fmt: skip
STEPS = (
    "clock", "job", "runner", "parked", "lock", "grab", "lane", "node", "sweep", "sorter", "schedule", "entry",
    "retarget", "trail", "trouble",
)  # fmt: skip

# Each use of a global goes through two tables, which cost a fifth of a step. Globals do not exist yet while the library
# is loaded, so its first call copies them into locals (functions/rules/step.lua).
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
    """`text`: as FUNCTION LOAD takes it."""

    name: str
    digest: str
    text: str


class Loaded(NamedTuple):
    """A library on a server. `digest`: '' for another program's; `current`: of this version of the package."""

    name: str
    digest: str
    current: bool


def text_of(file: str) -> str:
    """The text of `functions/rules/<file>.lua` or `functions/steps/<file>.lua`."""
    folder = "steps" if file in STEPS else "rules"
    path = resources.files("coordinator.store").joinpath("functions", folder, f"{file}.lua")
    return path.read_text(encoding="utf-8")


def assemble(
    text_of: Callable[[str], str] = text_of, before: str = "", prefix: str = PREFIX, rules: Sequence[str] = RULES,
    steps: Sequence[str] = STEPS,
) -> Library:  # fmt: skip
    """Join the files into one text, each with its own locals. `before`: Lua to put before them.

    `prefix`, `rules`, `steps`: for a second library that reuses some of the coordinator's files.
    """
    tables = [f"local {file} = (function()\n{text_of(file)}end)()\n" for file in rules]
    body = "".join([before, LOCALS, *tables, *(f"do\n{text_of(file)}end\n" for file in steps)])
    digest = hashlib.sha256(body.encode()).hexdigest()[:12]
    return Library(prefix + digest, digest, f"#!lua name={prefix}{digest}\nlocal DIGEST = '{digest}'\n{body}")


@cache
def current() -> Library:
    """The library of this version of the package."""
    return assemble()


def check_server(info: Mapping[str, object], where: str, functions: bool = True) -> None:
    """Raises SettingsError for a server without functions. `info`: the reply to INFO; `functions`: False if it knows no
    FCALL, as a server that is no Redis.
    """
    version = str(info.get("redis_version", "0"))  # Valkey names the Redis that it stands for
    if not functions or tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LEAST:
        lacks = "is too old" if functions else "has no functions"
        raise SettingsError(
            f"Redis at {where} has version {version}, which {lacks}: the coordinator needs Redis 7.0 or later, or "
            "Valkey 7.2 or later (for its functions). Upgrade that server, or name another one with COORDINATOR_URL"
        )


def is_missing(error: object) -> bool:
    """True for the error of a server that lacks the library of the called function."""
    return isinstance(error, Exception) and "function not found" in str(error).lower()


def loaded(listed: Iterable[Mapping[bytes, bytes] | Sequence[bytes]], library: Library) -> list[Loaded]:
    """Read the reply to FUNCTION LIST. `library`: the one of this version."""
    libraries = []
    for item in listed:
        pairs = item if isinstance(item, Mapping) else dict(zip(item[::2], item[1::2], strict=True))
        name = pairs[b"library_name"].decode()
        digest = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        libraries.append(Loaded(name, digest, name == library.name))
    return sorted(libraries)
