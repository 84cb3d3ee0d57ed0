"""The atomic steps as one library of Redis Functions: its files put together, and the libraries that a server has.

A library and the names of its functions belong to a whole server, whatever the database and the prefix. So both bear
the digest of the text, and two versions of this package work side by side on one Redis. None is removed by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from coordinator.errors import SettingsError

# Bottom up: each file names only tables of files before it. A file of rules returns its one table, named as it is.
RULES = (
    "redis", "base", "beside", "record", "sorters", "states", "ticks", "grabs", "retention", "line", "locks",
    "classes", "ready", "pace", "doorbells", "coalesce", "admit", "rings", "settle", "cancel", "claim", "nodes",
    "versions", "held", "submit", "step",
)  # fmt: skip
STEPS = (
    "clock", "job", "runner", "parked", "lock", "grab", "lane", "node", "sweep", "sorter", "schedule", "entry",
    "document",
)  # fmt: skip

# The server looks up a global anew at each use, through two tables; that was a fifth of a step. While the library is
# loaded there are none, so the first call makes locals of them: functions/rules/step.lua.
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

    digest: str
    text: str

    @property
    def name(self) -> str:
        return PREFIX + self.digest


class Loaded(NamedTuple):
    """A library that a server has. `digest`: '' where it is not the coordinator's; `current`: of this very version."""

    name: str
    digest: str
    current: bool


def text_of(file: str) -> str:
    """`functions/rules/<file>.lua` or `functions/steps/<file>.lua` as it is."""
    folder = "steps" if file in STEPS else "rules"
    path = resources.files("coordinator.store").joinpath("functions", folder, f"{file}.lua")
    return path.read_text(encoding="utf-8")


def assemble(text_of: Callable[[str], str] = text_of, before: str = "") -> Library:
    """The files in one text, each with locals of its own. `before`: Lua that goes before them."""
    rules = [f"local {file} = (function()\n{text_of(file)}end)()\n" for file in RULES]
    steps = [f"do\n{text_of(file)}end\n" for file in STEPS]
    body = "".join([before, LOCALS, *rules, *steps])
    digest = hashlib.sha256(body.encode()).hexdigest()[:12]
    return Library(digest, f"#!lua name={PREFIX}{digest}\nlocal DIGEST = '{digest}'\n{body}")


@cache
def current() -> Library:
    """That of this version of the package."""
    return assemble()


def check_server(info: Mapping[str, object], where: str) -> None:
    """Raises SettingsError for a server without functions; `info`: what it says of itself."""
    version = str(info.get("redis_version", "0"))  # Valkey names the Redis that it stands for
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LEAST:
        raise SettingsError(
            f"Redis at {where} has version {version}, which is too old: the coordinator needs Redis 7.0 or later, or "
            "Valkey 7.2 or later (for its functions). Upgrade that server, or name another one with COORDINATOR_URL"
        )


def is_missing(error: object) -> bool:
    """Does the server lack the function that was called, and so its library?"""
    return isinstance(error, Exception) and "function not found" in str(error).lower()


def loaded(listed: Iterable[Mapping[bytes, bytes] | Sequence[bytes]], library: Library) -> list[Loaded]:
    """From the reply to FUNCTION LIST; `library`: that of this version."""
    found = []
    for one in listed:
        pairs = one if isinstance(one, Mapping) else dict(zip(one[::2], one[1::2], strict=True))
        name = pairs[b"library_name"].decode()
        digest = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        found.append(Loaded(name, digest, name == library.name))
    return sorted(found)
