"""The versions of one document on this machine's disk.

`<folder>/<document>/<version>.jsonl`: a line that names document and version, then one line for each entry, sorted:
`["entry",fence,value]`; a removed entry's value is null. A version's checksum is the SHA-256 of its file, so every copy
of a version is the same byte by byte. `committed` names the version that this machine knows to be committed, and its
checksum. Two committed versions are kept, and the one that is prepared.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from coordinator.durable import replace

State = Mapping[str, str]
"""By entry, "<fence> <JSON>", as Redis keeps it."""

KEPT = 2
NEW = "new"  # one name: what a killed process left is overwritten
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Copy:
    """One version of a document. `stale`: it may not be the newest."""

    version: int
    sha: str
    state: State = field(repr=False)
    stale: bool = False

    def entries(self, prefix: str = "") -> dict[str, Any]:
        """The values by entry, those that begin so; what was removed is not there."""
        found = {entry: raw.partition(" ")[2] for entry, raw in self.state.items() if entry.startswith(prefix)}
        return {entry: json.loads(text) for entry, text in found.items() if text != "null"}

    def value(self, entry: str) -> Any:
        """None where there is none."""
        return json.loads(self.state.get(entry, "0 null").partition(" ")[2])

    def digest(self, entry: str) -> str:
        """By which a later update finds out whether it is still so."""
        return hashlib.sha1(self.state.get(entry, "0 null").encode()).hexdigest()

    def fence(self, entry: str) -> int:
        """The fence of its last change, 0 where there was none."""
        return int(self.state.get(entry, "0").partition(" ")[0])


def text_of(value: Any) -> str:
    """The one way in which a value is written."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def changed(state: State, updates: list[dict[str, Any]]) -> dict[str, str]:
    """The state after updates: each {changes: [[entry, JSON, checksum, fence], …], …}."""
    after = dict(state)
    for update in updates:
        for entry, text, _, fence in update["changes"]:
            after[entry] = f"{fence} {text}"
    return after


def written(document: str, version: int, state: State) -> bytes:
    lines = [text_of({"document": document, "version": version})]
    for entry in sorted(state):
        fence, _, text = state[entry].partition(" ")
        lines.append(f"[{text_of(entry)},{fence},{text}]")
    return "\n".join([*lines, ""]).encode()


def checksum(document: str, version: int, state: State) -> str:
    return hashlib.sha256(written(document, version, state)).hexdigest()


class Copies:
    """The folder of one document. A file that is torn or was tampered with counts as none."""

    def __init__(self, folder: Path, document: str) -> None:
        self.document = document
        self.folder = folder / document.replace("/", "%2F")
        self._note = str(self.folder / "committed")
        self._noted: tuple[tuple[int, int], tuple[int, str]] | None = None

    def lock(self) -> IO[str] | None:
        """Held until it is closed; None while another process keeps this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = (self.folder / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def write(self, version: int, state: State) -> str:
        """Durably; its checksum. Raises OSError."""
        body = written(self.document, version, state)
        replace(self._path(version), body, NEW)
        return hashlib.sha256(body).hexdigest()

    def read(self, version: int, sha: str = "") -> Copy | None:
        """None where there is no such file, or another than that checksum says; "-" and "" say nothing."""
        try:
            body = self._path(version).read_bytes()
        except OSError:
            return None
        found = hashlib.sha256(body).hexdigest()
        lines = body.decode(errors="replace").split("\n")
        if (
            sha not in ("", "-", found)
            or lines[0] != text_of({"document": self.document, "version": version})
            or lines[-1]
        ):
            return None
        return Copy(version, found, dict(_parsed(line) for line in lines[1:-1]))

    def committed(self) -> tuple[int, str]:
        """(0, "") before anything was. Each read asks: read again only where inode or time of the file are others."""
        try:
            about = os.stat(self._note)
            which = about.st_ino, about.st_mtime_ns
            if self._noted is None or self._noted[0] != which:
                version, _, sha = Path(self._note).read_text().strip().partition(" ")
                self._noted = which, (int(version), sha)
        except (OSError, ValueError):
            return 0, ""
        return self._noted[1]

    def commit(self, version: int, sha: str) -> None:
        """From now on this is the version; older ones are dropped but for the last. Raises OSError."""
        replace(Path(self._note), f"{version} {sha}\n".encode(), NEW)
        older = [one for one in self.versions() if one <= version]
        for one in older[:-KEPT]:
            self._path(one).unlink(missing_ok=True)

    def drop(self, version: int) -> None:
        self._path(version).unlink(missing_ok=True)

    def versions(self) -> list[int]:
        """Those that have a file, in order."""
        found = (path.name.removesuffix(".jsonl") for path in self.folder.glob("*.jsonl"))
        return sorted(int(name) for name in found if name.isdecimal())

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.jsonl"


def _parsed(line: str) -> tuple[str, str]:
    entry, end = _DECODER.raw_decode(line, 1)
    fence, _, text = line[end + 1 : -1].partition(",")
    return entry, f"{fence} {text}"
