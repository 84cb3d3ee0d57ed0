"""Copies as earlier versions of this library wrote them: a file for each version, and `committed` beside them.

<folder>/<document>/<version>.jsonl    a line that names document and version, then a line for each entry, sorted
<folder>/<document>/committed          the committed version, and the SHA-256 of its file
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from coordinator.documents.copy import Copy, entry_of, file_of


def read(folder: Path, document: str) -> tuple[Copy, Copy | None] | None:
    """The committed version, and a later one that was prepared upon it. None where no good one is there."""
    try:
        text, _, sha = (folder / "committed").read_text().strip().partition(" ")
        committed = _read(folder, document, int(text))
    except (OSError, ValueError):
        return None
    if committed is None or committed.sha != sha:
        return None
    names = (path.name.removesuffix(".jsonl") for path in folder.glob("*.jsonl"))
    later = sorted((int(name) for name in names if name.isdecimal() and int(name) > committed.version), reverse=True)
    found = (_read(folder, document, version) for version in later)
    return committed, next((copy for copy in found if copy), None)


def _read(folder: Path, document: str, version: int) -> Copy | None:
    try:
        body = (folder / f"{version}.jsonl").read_bytes()
        state = dict(entry_of(line) for line in body.decode().split("\n")[1:-1])
    except (OSError, ValueError, IndexError):
        return None
    if body != file_of(document, version, state):
        return None
    return Copy(version, hashlib.sha256(body).hexdigest(), state)
