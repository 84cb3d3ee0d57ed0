"""Assembles the library of Redis Functions for documents, which Redis loads in addition to the coordinator's.

Its source is document.lua, versions.lua and the coordinator's Lua rules.
"""

from functools import cache
from pathlib import Path

from coordinator.extending import RULES, Library, Store, assemble, declared_in
from coordinator.extending import text_of as text_of_rule
from tasks.documents import steps

HERE = Path(__file__).parent
OWN = ("versions", "document")
DECLARED = declared_in(steps)


def text_of(file: str) -> str:
    """Read the Lua source of a file, from this folder or from the coordinator. `file`: the name without `.lua`."""
    return (HERE / f"{file}.lua").read_text(encoding="utf-8") if file in OWN else text_of_rule(file)


@cache
def current() -> Library:
    """Return the library for documents of this version of the program."""
    rules = (*RULES[:-1], "versions", RULES[-1])
    return assemble(text_of, "", "documents_", rules, ("clock", "document"), DECLARED)


def with_documents(store: Store) -> Store:
    """Return a Store with the same connections that calls the functions for documents, not the coordinator's."""
    return Store(store.settings, store.connections, current())
