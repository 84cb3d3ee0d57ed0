"""The append-only file of Redis on the disk: its folder, its parts, and where its records end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

FOLDER = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"


def parts(data: Path, kind: str) -> list[Path]:
    """The files of a kind that the manifest lists, in order: `b` the base, `i` what was written since, `h` older."""
    lines = [line.split() for line in (data / FOLDER / MANIFEST).read_text().splitlines()]
    return [data / FOLDER / words[1] for words in lines if words[-1] == kind]


def tail(data: Path) -> Path:
    """The file that Redis appends to."""
    return parts(data, "i")[-1]


def records(text: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Each whole command: where it ends, and its words."""
    at = 0
    while at < len(text):
        words, end = _record(text, at)
        if end > len(text):
            return
        yield end, words
        at = end


def _record(text: bytes, at: int) -> tuple[list[bytes], int]:
    count, at = _number(text, at, b"*")
    words = []
    for _ in range(count):
        length, at = _number(text, at, b"$")
        words.append(text[at : at + length])
        at += length + 2
    return words, at


def _number(text: bytes, at: int, sign: bytes) -> tuple[int, int]:
    """The number of a line that begins there, and where the next one begins."""
    end = text.find(b"\r\n", at)
    if end < 0:
        return 0, len(text) + 1
    assert text[at : at + 1] == sign, f"{text[at : at + 20]!r} at {at} is no record"
    return int(text[at + 1 : end]), end + 2


def borders(text: bytes) -> list[int]:
    """Where a record ends: with the file's end, if that is whole."""
    return [end for end, _ in records(text)]
