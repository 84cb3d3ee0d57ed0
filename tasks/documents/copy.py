"""A version of a document in memory, and its checksum.

The checksum is the sum of the SHA-256 of all entries, modulo 2**256, as 64 hexadecimal digits. A change costs what it
changes: the old entry is subtracted and the new one added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

State = Mapping[str, str]
"""By entry, "<fence> <JSON>", as Redis keeps it. A removed entry has the JSON null."""

ANY = ("", "-")
"""The values that stand for an unknown checksum: any checksum fits."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Copy:
    """A version of a document. `sha`: its checksum. `stale`: there may be a newer one."""

    version: int
    sha: str
    state: State = field(repr=False)
    stale: bool = False

    def entries(self, prefix: str = "") -> dict[str, Any]:
        """The values of all entries whose names begin with `prefix`, without the removed ones."""
        texts = {entry: raw.partition(" ")[2] for entry, raw in self.state.items() if entry.startswith(prefix)}
        return {entry: json.loads(text) for entry, text in texts.items() if text != "null"}

    def value(self, entry: str) -> Any:
        """The value of an entry, or None."""
        return json.loads(self.state.get(entry, "0 null").partition(" ")[2])

    def digest(self, entry: str) -> str:
        """A checksum of one entry, by which a later update sees whether somebody changed it."""
        return hashlib.sha1(self.state.get(entry, "0 null").encode()).hexdigest()

    def fence(self, entry: str) -> int:
        """The fence of an entry's last change; 0 where there was none."""
        return int(self.state.get(entry, "0").partition(" ")[0])


NONE = Copy(0, "", {})


def text_of(value: object) -> str:
    """The canonical JSON of a value, in Redis and on the disk."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def line_of(entry: str, raw: str) -> str:
    """An entry as a line of a file: `["entry",fence,value]`."""
    fence, _, text = raw.partition(" ")
    return f"[{text_of(entry)},{fence},{text}]"


def entry_of(line: str) -> tuple[str, str]:
    """Read such a line. Raises ValueError or IndexError."""
    entry, end = _DECODER.raw_decode(line, 1)
    fence, _, text = line[end + 1 : -1].partition(",")
    return entry, f"{fence} {text}"


def sum_of(state: State) -> str:
    return sum_after("", {}, state)


def sum_after(before: str, state: State, changes: State) -> str:
    """The checksum after these changes of a state that had the checksum `before`; "" = an empty one."""
    total = int(before or "0", 16)
    for entry, raw in changes.items():
        total += _weight(entry, raw) - (_weight(entry, state[entry]) if entry in state else 0)
    return f"{total % 2**256:064x}"


def _weight(entry: str, raw: str) -> int:
    return int.from_bytes(hashlib.sha256(line_of(entry, raw).encode()).digest())
