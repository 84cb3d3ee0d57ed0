"""What differs between the entries that the directory has and those that it should have."""

from collections.abc import Mapping
from typing import NamedTuple

from tasks.nodelist.ldap.schema import CHANGEABLE, NODE, Attributes, Path, kind, meaning


class Changes(NamedTuple):
    """The changes between two sets of entries, in an order that leaves a readable member after each step.

    `changed`: attributes and their new values; an empty tuple removes the attribute. The member's own entry comes
    first. `added`: parents first. `vanished`: children first.
    """

    changed: dict[Path, Attributes]
    added: dict[Path, Attributes]
    vanished: list[Path]


def changes(known: Mapping[Path, Attributes], wanted: Mapping[Path, Attributes], whole: bool = False) -> Changes:
    """`whole`: include the attributes that stay as they are."""
    changed: dict[Path, Attributes] = {}
    for path in sorted(wanted.keys() & known.keys(), key=lambda path: (len(path), path)):
        old, new = known[path], wanted[path]
        differ = {
            name: tuple(new.get(name, ()))
            for name in sorted(CHANGEABLE[kind(path, new) or NODE])
            if whole or meaning(name, old.get(name, ())) != meaning(name, new.get(name, ()))
        }
        if differ:
            changed[path] = differ
    added = {path: entry for path, entry in wanted.items() if path not in known}
    vanished = [path for path, entry in known.items() if path not in wanted and kind(path, entry)]
    return Changes(changed, added, sorted(vanished, key=lambda path: (-len(path), path)))
