"""A version of a document in memory, and its checksum.

The checksum is the sum of the SHA-256 of all entries, modulo 2**256, as 64 hexadecimal digits. To compute the checksum
after a change, only the changed entries are hashed: the old entry's hash is subtracted, the new one's added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

State = Mapping[str, str]
"""Maps the name of each entry to "<fence> <JSON>", as in Redis. A removed entry has the JSON null."""

ANY = ("", "-")
"""Values of a checksum that is not known, so that every checksum counts as equal to it."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Copy:
    """A version of a document with all its entries. `sha`: the checksum. `stale`: Redis may have a newer version."""

    version: int
    sha: str
    state: State = field(repr=False)
    stale: bool = False

    def entries(self, prefix: str = "") -> dict[str, Any]:
        """Return, by name, the values of all entries whose names begin with `prefix`, without the removed ones."""
        texts = {entry: raw.partition(" ")[2] for entry, raw in self.state.items() if entry.startswith(prefix)}
        return {entry: json.loads(text) for entry, text in texts.items() if text != "null"}

    def value(self, entry: str) -> Any:
        """Return the value of an entry; None if there is no such entry."""
        return json.loads(self.state.get(entry, "0 null").partition(" ")[2])

    def digest(self, entry: str) -> str:
        """Return a checksum of one entry, by which an update detects that the entry was changed after it was read."""
        return hashlib.sha1(self.state.get(entry, "0 null").encode()).hexdigest()

    def fence(self, entry: str) -> int:
        """Return the fence of an entry's last change; 0 if the entry never existed."""
        return int(self.state.get(entry, "0").partition(" ")[0])


NONE = Copy(0, "", {})
"""The empty version of a document that has no version yet."""


def text_of(value: object) -> str:
    """Write a value as canonical JSON, the form in Redis and on the disk. Raises ValueError or TypeError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def line_of(entry: str, raw: str) -> str:
    """Write an entry as a line of a file: `["entry",fence,value]`. `raw`: "<fence> <JSON>"."""
    fence, _, text = raw.partition(" ")
    return f"[{text_of(entry)},{fence},{text}]"


def entry_of(line: str) -> tuple[str, str]:
    """Read a line that `line_of` wrote. Returns the entry and "<fence> <JSON>". Raises ValueError or IndexError."""
    entry, end = _DECODER.raw_decode(line, 1)
    fence, _, text = line[end + 1 : -1].partition(",")
    return entry, f"{fence} {text}"


def sum_of(state: State) -> str:
    """Return the checksum of a version with these entries."""
    return sum_after("", {}, state)


def sum_after(before: str, state: State, changes: State) -> str:
    """Return the checksum of `state` after `changes`. `before`: the checksum of `state`; "" if it has no entries."""
    total = int(before or "0", 16)
    for entry, raw in changes.items():
        total += _weight(entry, raw) - (_weight(entry, state[entry]) if entry in state else 0)
    return f"{total % 2**256:064x}"


def _weight(entry: str, raw: str) -> int:
    """Return the SHA-256 of an entry, as the number that it adds to the checksum."""
    return int.from_bytes(hashlib.sha256(line_of(entry, raw).encode()).digest())
