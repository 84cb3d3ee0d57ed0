"""The atomic steps of documents: a library of Redis Functions beside the coordinator's, with its rules."""

from functools import cache
from pathlib import Path

from coordinator.store import library
from coordinator.store.client import Store
from coordinator.store.library import RULES, Library

HERE = Path(__file__).parent
OWN = ("versions", "document")


def text_of(file: str) -> str:
    return (HERE / f"{file}.lua").read_text(encoding="utf-8") if file in OWN else library.text_of(file)


@cache
def current() -> Library:
    return library.assemble(text_of, "", "documents_", (*RULES[:-1], "versions", RULES[-1]), ("clock", "document"))


def with_documents(store: Store) -> Store:
    """A Store over the same connections, with the steps of documents in place of the coordinator's."""
    return Store(store.settings, store.connections, current())
