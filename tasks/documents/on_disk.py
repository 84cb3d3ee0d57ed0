"""The copies of one document on this machine's disk: a snapshot, and a log of the changes since.

    <folder>/<document>/<n>.snapshot   a version: a line that names document, version and checksum, then one line
                                       for each entry, sorted: `["entry",fence,value]`
    <folder>/<document>/<n>.log        the later versions: a line when one is prepared, and one when it is committed
    <folder>/<document>/identity       a random name, different for each folder of the replica set

Each line of a log begins with a checksum of the line. A reader ignores an incomplete line (as a power failure may leave
one) and all lines after it, and ignores a snapshot whose entries do not match the checksum in its first line. A new
version adds only changed entries to the log. Once the log is longer than the snapshot, a new snapshot replaces both.

One process, the owner, holds a lock on the folder and writes. Other processes read what was appended since they last
read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO

from tasks.documents import atomic_file
from tasks.documents.copy import ANY, NONE, Copy, State, entry_of, line_of, sum_after, sum_of, text_of

SMALL_LOG = 64 * 1024
"""A log with fewer bytes is never replaced by a new snapshot."""
NEW = "new"  # the name of each file until it is complete; the next write overwrites one that a killed process left


@dataclass(frozen=True)
class _Versions:
    """The versions that were read from the snapshot `number` and its log, up to the byte `offset`.

    `before`: the version that was committed before `committed`. `prepared`: by number, the versions that are not
    committed.
    """

    number: int = 0
    offset: int = 0
    committed: Copy = NONE
    before: Copy = NONE
    prepared: Mapping[int, Copy] = field(default_factory=dict)


class Copies:
    """Reads and writes the folder of one document's copies. `folder`: that of the node or beat.

    Ignores incomplete lines, and files that do not match their checksum.
    """

    def __init__(self, folder: Path, document: str) -> None:
        self.document = document
        self.folder = folder / document.replace("/", "%2F")
        self.owner = folder.name
        self._versions = _Versions()  # immutable; only the reference is replaced, so that threads need no lock

    @property
    def member(self) -> str:
        """The owner's name in the replica set: "<name>#<identity>"; without the file `identity`, "<name>"."""
        with suppress(OSError):
            return f"{self.owner}#{(self.folder / 'identity').read_text().strip()}"
        return self.owner

    def committed(self) -> Copy:
        """Return the last version that is committed on this disk; version 0 before the first."""
        return self._scan().committed

    def prepared(self) -> Copy | None:
        """Return the latest version that was prepared on this disk and is not committed; None if there is none."""
        known = self._scan()
        return known.prepared[max(known.prepared)] if known.prepared else None

    def versions(self) -> list[int]:
        """Return the numbers of the versions that `read` can return, in ascending order."""
        known = self._scan()
        return sorted({known.before.version, known.committed.version, *known.prepared} - {0})

    def read(self, version: int, sha: str = "") -> Copy | None:
        """Read a version. None: missing, damaged, or with another checksum than `sha` ("" and "-" accept any)."""
        known = self._scan()
        copies = {copy.version: copy for copy in (known.before, known.committed, *known.prepared.values())}
        copy = copies.get(version) if version else None
        return copy if copy and sha in (*ANY, copy.sha) else None

    def _scan(self) -> _Versions:
        """Read the lines appended to the log since the last call, or all files if there is another snapshot."""
        known = self._versions
        path = f"{self.folder}/{known.number}.log"
        try:
            if (size := os.stat(path).st_size) == known.offset:
                return known
            with open(path, "rb") as file:
                file.seek(known.offset)
                appended = file.read()
        except OSError:
            size, appended = 0, b""
        after = _replay(known, appended)
        # If the log is shorter than before, or its new lines are invalid, the owner has overwritten a line that it
        # could not flush to the disk: read everything again.
        lost = size < known.offset or (after is known and b"\n" in appended)
        self._versions = self._loaded() if lost or not size else after
        return self._versions

    def _loaded(self) -> _Versions:
        """Read the newest valid snapshot and its log. Without one, returns version 0."""
        for number in sorted(self._numbers(), reverse=True):
            if (snapshot := _snapshot(self._snapshot(number), self.document)) is None:
                continue
            known = _Versions(number, 0, snapshot)
            with suppress(OSError):
                return _replay(known, self._log(number).read_bytes())
        return _Versions()

    def _numbers(self) -> list[int]:
        """Return the numbers in the names of the snapshots."""
        names = (path.name.removesuffix(".snapshot") for path in self.folder.glob("*.snapshot"))
        return [int(name) for name in names if name.isdecimal()]

    def _snapshot(self, number: int) -> Path:
        return self.folder / f"{number}.snapshot"

    def _log(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    # Only the process that owns the folder may call the methods below.

    def lock(self) -> IO[str] | None:
        """Lock the folder until the returned file is closed. None: another process owns the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = (self.folder / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def identify(self, anew: bool = False) -> None:
        """Write a random name to the file `identity`, if there is none; with `anew`, in any case. Raises OSError."""
        if anew or self.member in (self.owner, f"{self.owner}#"):
            atomic_file.replace(self.folder / "identity", f"{uuid.uuid4().hex[:12]}\n".encode(), NEW)

    def begin(self) -> None:
        """Read all files again, and remove those that are not needed. Raises OSError."""
        self._versions = self._loaded()
        self._tidy()

    def prepare(self, version: int, changes: State) -> Copy:
        """Append a version to the log, as not committed yet, and flush it to the disk. `changes`: the changed entries.

        If this raises OSError, the log is as before.
        """
        base = self._scan().committed
        lines = [line_of(*change) for change in changes.items()]
        self._append(["prepare", version, base.version, sum_after(base.sha, base.state, changes), *lines], True)
        return self._scan().prepared[version]

    def commit(self, version: int) -> Copy:
        """Append to the log that a prepared version is committed, and return that version. Raises OSError.

        The line is not flushed to the disk: if the power fails, the version is still there as prepared, and Redis has
        this process commit it again.
        """
        self._append(["commit", version], False)
        known = self._scan()
        if self._log(known.number).stat().st_size > max(SMALL_LOG, self._snapshot(known.number).stat().st_size):
            with suppress(OSError):  # such as a full disk: the log is kept, and grows
                self.replace(version, known.committed.state)
        return known.committed

    def replace(self, version: int, state: State) -> Copy:
        """Write a new snapshot of a committed version, with an empty log. Raises OSError; then the old files stay."""
        self.folder.mkdir(parents=True, exist_ok=True)
        copy = Copy(version, sum_of(state) if version else "", dict(state))
        lines = [text_of({"document": self.document, "version": version, "sum": copy.sha})]
        lines += [line_of(entry, state[entry]) for entry in sorted(state)]
        number = max([0, *self._numbers()]) + 1
        self._log(number).write_bytes(b"")
        atomic_file.replace(self._snapshot(number), "\n".join([*lines, ""]).encode(), NEW)
        self._versions = _Versions(number, 0, copy, self._versions.before)
        self._tidy()
        return copy

    def _tidy(self) -> None:
        """Remove all files except the newest snapshot, its log, the lock and the identity."""
        number = self._versions.number
        kept = {"lock", "identity", *([f"{number}.snapshot", f"{number}.log"] if number else [])}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _append(self, record: list[object], durably: bool) -> None:
        """Append a line to the log. `durably`: flush it to the disk. If this raises OSError, the log is as before."""
        if not self._scan().number:
            self.replace(0, {})
        known = self._scan()
        body = text_of(record).encode()
        with self._log(known.number).open("r+b") as file:
            file.truncate(known.offset)  # remove an incomplete line
            file.seek(known.offset)
            try:
                write(file, _signature(body) + b" " + body + b"\n")
                if durably:
                    os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), known.offset)
                raise


def write(file: BinaryIO, line: bytes) -> None:
    """Write a line and pass it to the operating system."""
    file.write(line)
    file.flush()


def _signature(body: bytes) -> bytes:
    """Return the checksum with which a line of the log begins."""
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _replay(known: _Versions, appended: bytes) -> _Versions:
    """Apply these bytes of the log to the versions read before, up to the first incomplete or damaged line."""
    for line in appended.split(b"\n")[:-1]:
        body = line[17:]
        if line[:17] != _signature(body) + b" ":
            break
        known = replace(_apply(known, json.loads(body)), offset=known.offset + len(line) + 1)
    return known


def _apply(known: _Versions, record: list[Any]) -> _Versions:
    """Apply one line of the log to the versions read before. Ignores a record that does not follow from them."""
    kind, version, *rest = record
    if kind == "prepare":
        base, total, *lines = rest
        if base != known.committed.version:
            return known
        state = {**known.committed.state, **dict(entry_of(line) for line in lines)}
        return replace(known, prepared={**known.prepared, version: Copy(version, total, state)})
    if version not in known.prepared:
        return known
    return replace(known, committed=known.prepared[version], before=known.committed, prepared={})


def _snapshot(path: Path, document: str) -> Copy | None:
    """Read the version in a snapshot. None: the file is missing, damaged, or of another document."""
    try:
        head, *lines = path.read_bytes().decode().split("\n")
        about = json.loads(head)
        state = dict(entry_of(line) for line in takewhile(bool, lines))
    except (OSError, ValueError, IndexError):
        return None
    version = about.get("version")
    if about.get("document") != document or about.get("sum") != (sum_of(state) if version else ""):
        return None
    return Copy(version, about["sum"], state)
