"""What a power cut or a bad disk does to the end of the append-only file."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from proof.power.files import borders

LAST = 65_536  # bytes of the file's end that are harmed
PAGE = 4096  # bytes that a file system writes at once

BORDER, CUT, FLIP = "cut at a record's border", "cut at any byte", "one bit flipped"
SHORT, ZEROS, HOLE = "cut at a page's border", "zeros from a page's border on", "one page of zeros"


class Harm(NamedTuple):
    """`at`: the first byte that is not as it was written."""

    kind: str
    at: int
    bit: int = 0

    def on(self, text: bytes) -> bytes:
        kept, rest = text[: self.at], text[self.at :]
        if self.kind == FLIP:
            return kept + bytes([rest[0] ^ 1 << self.bit]) + rest[1:]
        if self.kind == ZEROS:
            return kept + bytes(len(rest))
        if self.kind == HOLE:
            return kept + bytes(len(rest[:PAGE])) + rest[PAGE:]
        return kept


def pages(text: bytes, most: int, chance: Random) -> Iterator[Harm]:
    """What of a tail that was not synced a file system leaves behind."""
    first = _first(text)
    starts = range(first + -first % PAGE, len(text), PAGE)
    for kind in (SHORT, ZEROS, HOLE):
        for at in sorted(chance.sample(starts, min(most, len(starts)))):
            yield Harm(kind, at)


def drawn(text: bytes, most: int, chance: Random) -> list[Harm]:
    """So many of each kind at most: at borders, and at bytes."""
    every = range(_first(text), len(text))
    ends = [end for end in borders(text) if end in every]
    found = [Harm(BORDER, at) for at in chance.sample(ends, min(most, len(ends)))]
    for kind in (CUT, FLIP):
        found += [Harm(kind, at, chance.randrange(8)) for at in chance.sample(every, min(most, len(every)))]
    chance.shuffle(found)
    return found


def _first(text: bytes) -> int:
    return max(0, len(text) - LAST)
