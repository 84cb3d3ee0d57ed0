"""Computes the changes that turn a member's entries in LDAP into those that LDAP should have."""

from collections.abc import Mapping
from typing import NamedTuple

from tasks.nodelist.ldap.schema import CHANGEABLE, NODE, Attributes, Path, kind, meaning


class Changes(NamedTuple):
    """The changes of a member's entries in LDAP, by path, in an order that leaves a readable member after each step.

    `changed`: attributes and their new values, the member's own entry first; an empty tuple removes the attribute.
    `added`: new entries, parents first. `vanished`: entries to delete, children first.
    """

    changed: dict[Path, Attributes]
    added: dict[Path, Attributes]
    vanished: list[Path]


def changes(known: Mapping[Path, Attributes], wanted: Mapping[Path, Attributes], whole: bool = False) -> Changes:
    """The changes that turn the entries `known` into the entries `wanted`. `whole`: include unchanged attributes."""
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
