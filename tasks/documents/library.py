"""The atomic steps of documents: a library of Redis Functions beside the coordinator's, with its rules."""

from functools import cache
from pathlib import Path

from coordinator.extending import RULES, Library, Store, assemble
from coordinator.extending import text_of as text_of_rule

HERE = Path(__file__).parent
OWN = ("versions", "document")


def text_of(file: str) -> str:
    return (HERE / f"{file}.lua").read_text(encoding="utf-8") if file in OWN else text_of_rule(file)


@cache
def current() -> Library:
    return assemble(text_of, "", "documents_", (*RULES[:-1], "versions", RULES[-1]), ("clock", "document"))


def with_documents(store: Store) -> Store:
    """A Store over the same connections, with the steps of documents in place of the coordinator's."""
    return Store(store.settings, store.connections, current())
