"""The versions of one document on this machine's disk.

    <folder>/<document>/<version>.jsonl    a line that names document and version, then a line for each entry, sorted:
                                           `["entry",fence,value]`; the value of a removed entry is null
    <folder>/<document>/committed          the version that this machine knows to be committed, and its checksum

A version's checksum is the SHA-256 of its file, so every copy of a version is the same byte by byte. The folder keeps
two committed versions and the prepared one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypedDict

from coordinator.documents.atomic_file import replace

State = Mapping[str, str]
"""By entry, "<fence> <JSON>", as Redis keeps it."""

KEPT = 2
NEW = "new"  # one name for all new files, so that the next one overwrites a killed process's
_DECODER = json.JSONDecoder()


class Update(TypedDict):
    """An update that waits in Redis. `changes`: (entry, its value as JSON, checksum that the author read, fence)."""

    changes: list[tuple[str, str, str, int]]


@dataclass(frozen=True, slots=True)
class Copy:
    """One version of a document. `stale`: there may be a newer one."""

    version: int
    sha: str
    state: State = field(repr=False)
    stale: bool = False

    def entries(self, prefix: str = "") -> dict[str, Any]:
        """The values of all entries whose names begin with `prefix`, without the removed ones."""
        found = {entry: raw.partition(" ")[2] for entry, raw in self.state.items() if entry.startswith(prefix)}
        return {entry: json.loads(text) for entry, text in found.items() if text != "null"}

    def value(self, entry: str) -> Any:
        """The value of an entry, or None."""
        return json.loads(self.state.get(entry, "0 null").partition(" ")[2])

    def digest(self, entry: str) -> str:
        """A checksum of one entry, by which a later update sees whether somebody changed it."""
        return hashlib.sha1(self.state.get(entry, "0 null").encode()).hexdigest()

    def fence(self, entry: str) -> int:
        """The fence of an entry's last change; 0 where there was none."""
        return int(self.state.get(entry, "0").partition(" ")[0])


def text_of(value: object) -> str:
    """The one text of a value, in Redis and on the disk."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def changed(state: State, updates: Iterable[Update]) -> dict[str, str]:
    """The state after these updates."""
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
    """The folder of one document. A file that is torn, or that somebody changed, counts as none."""

    def __init__(self, folder: Path, document: str) -> None:
        self.document = document
        self.folder = folder / document.replace("/", "%2F")
        self._note = str(self.folder / "committed")
        self._noted: tuple[tuple[int, int], tuple[int, str]] | None = None

    def lock(self) -> IO[str] | None:
        """A lock on the folder, held until the file is closed; None while another process keeps the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = (self.folder / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def write(self, version: int, state: State) -> str:
        """Write a version durably; its checksum. Raises OSError."""
        body = written(self.document, version, state)
        replace(self._path(version), body, NEW)
        return hashlib.sha256(body).hexdigest()

    def read(self, version: int, sha: str = "") -> Copy | None:
        """None where the file is missing, damaged, or has another checksum. `sha` "" or "-": any checksum will do."""
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
        """The committed version and its checksum; (0, "") before there is one.

        Every read of a document asks this, so the file is read again only after its inode or time has changed.
        """
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
        """Note this version as committed, and drop the older ones but for the last. Raises OSError."""
        replace(Path(self._note), f"{version} {sha}\n".encode(), NEW)
        older = [one for one in self.versions() if one <= version]
        for one in older[:-KEPT]:
            self._path(one).unlink(missing_ok=True)

    def drop(self, version: int) -> None:
        self._path(version).unlink(missing_ok=True)

    def versions(self) -> list[int]:
        """The versions that have a file, in order."""
        found = (path.name.removesuffix(".jsonl") for path in self.folder.glob("*.jsonl"))
        return sorted(int(name) for name in found if name.isdecimal())

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.jsonl"


def _parsed(line: str) -> tuple[str, str]:
    entry, end = _DECODER.raw_decode(line, 1)
    fence, _, text = line[end + 1 : -1].partition(",")
    return entry, f"{fence} {text}"
