"""The copies of one document on this machine's disk: a snapshot, and a log of the changes since.

    <folder>/<document>/<n>.snapshot   a version: a line that names document, version and checksum, then one line
                                       for each entry, sorted: `["entry",fence,value]`
    <folder>/<document>/<n>.log        the versions since: a line when one is prepared, and one when it is committed
    <folder>/<document>/identity       a random name, so that no other folder of the replica set has it

Each line of a log begins with its own checksum. A reader ignores a torn line and all lines behind it, and a snapshot
whose entries do not have its checksum. A commit costs what it changes; once the log is longer
than the snapshot, a new snapshot replaces both.

One process, the keeper, holds a lock on the folder and writes. Others read what was appended since their last read.
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
"""A log of fewer bytes is never replaced by a snapshot."""
NEW = "new"  # one name for all new files: the next one overwrites what a killed process left


@dataclass(frozen=True)
class _Seen:
    """The versions read so far: snapshot `number`, and its log up to `offset`. All checksums are right.

    `before`: the version that was committed before `committed`.
    """

    number: int = 0
    offset: int = 0
    committed: Copy = NONE
    before: Copy = NONE
    prepared: Mapping[int, Copy] = field(default_factory=dict)


class Copies:
    """The folder of one document. Torn lines, and files that somebody changed, are ignored."""

    def __init__(self, folder: Path, document: str) -> None:
        self.document = document
        self.folder = folder / document.replace("/", "%2F")
        self.keeper = folder.name
        self._seen = _Seen()  # immutable and replaced whole, so that threads need no lock

    @property
    def member(self) -> str:
        """The keeper as a member of the replica set: "<name>#<identity>"; without an identity, its name."""
        with suppress(OSError):
            return f"{self.keeper}#{(self.folder / 'identity').read_text().strip()}"
        return self.keeper

    def committed(self) -> Copy:
        """The last version that is committed here; version 0 before there is one."""
        return self._look().committed

    def prepared(self) -> Copy | None:
        """The latest version that was prepared after the committed one."""
        seen = self._look()
        return seen.prepared[max(seen.prepared)] if seen.prepared else None

    def versions(self) -> list[int]:
        """The versions that can be read, in order."""
        seen = self._look()
        return sorted({seen.before.version, seen.committed.version, *seen.prepared} - {0})

    def read(self, version: int, sha: str = "") -> Copy | None:
        """A version. None where it is missing, damaged, or has another checksum than `sha` ("" and "-" accept any)."""
        seen = self._look()
        known = {copy.version: copy for copy in (seen.before, seen.committed, *seen.prepared.values())}
        copy = known.get(version) if version else None
        return copy if copy and sha in (*ANY, copy.sha) else None

    def _look(self) -> _Seen:
        """Read what was appended, or everything where there is another snapshot now."""
        seen = self._seen
        path = f"{self.folder}/{seen.number}.log"
        try:
            if (size := os.stat(path).st_size) == seen.offset:
                return seen
            with open(path, "rb") as file:
                file.seek(seen.offset)
                appended = file.read()
        except OSError:
            size, appended = 0, b""
        after = _followed(seen, appended)
        # The keeper may have replaced a line that it could not flush.
        lost = size < seen.offset or (after is seen and b"\n" in appended)
        self._seen = self._loaded() if lost or not size else after
        return self._seen

    def _loaded(self) -> _Seen:
        for number in sorted(self._numbers(), reverse=True):
            if (snapshot := _snapshot(self._snapshot(number), self.document)) is None:
                continue
            seen = _Seen(number, 0, snapshot)
            with suppress(OSError):
                return _followed(seen, self._log(number).read_bytes())
        return _Seen()

    def _numbers(self) -> list[int]:
        names = (path.name.removesuffix(".snapshot") for path in self.folder.glob("*.snapshot"))
        return [int(name) for name in names if name.isdecimal()]

    def _snapshot(self, number: int) -> Path:
        return self.folder / f"{number}.snapshot"

    def _log(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    # The methods below are the keeper's alone.

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

    def identify(self, anew: bool = False) -> None:
        """Give the folder an identity, unless it has one; with `anew` a new one in any case. Raises OSError."""
        if anew or self.member in (self.keeper, f"{self.keeper}#"):
            atomic_file.replace(self.folder / "identity", f"{uuid.uuid4().hex[:12]}\n".encode(), NEW)

    def begin(self) -> None:
        """Read the disk anew. Raises OSError."""
        self._seen = self._loaded()
        self._tidy()

    def prepare(self, version: int, changes: State) -> Copy:
        """Append a version and flush it to the disk. Raises OSError, and then the log is as before."""
        upon = self._look().committed
        lines = [line_of(*change) for change in changes.items()]
        self._append(["prepare", version, upon.version, sum_after(upon.sha, upon.state, changes), *lines], True)
        return self._look().prepared[version]

    def commit(self, version: int) -> Copy:
        """Note a prepared version as committed. Raises OSError.

        The line is not flushed: after a power cut the version is still there as prepared, and Redis commits it again.
        """
        self._append(["commit", version], False)
        seen = self._look()
        if self._log(seen.number).stat().st_size > max(SMALL_LOG, self._snapshot(seen.number).stat().st_size):
            with suppress(OSError):  # the log goes on
                self.replace(version, seen.committed.state)
        return seen.committed

    def replace(self, version: int, state: State) -> Copy:
        """Start a new snapshot and log with this committed version. Raises OSError, and then the old ones stay."""
        self.folder.mkdir(parents=True, exist_ok=True)
        copy = Copy(version, sum_of(state) if version else "", dict(state))
        lines = [text_of({"document": self.document, "version": version, "sum": copy.sha})]
        lines += [line_of(entry, state[entry]) for entry in sorted(state)]
        number = max([0, *self._numbers()]) + 1
        self._log(number).write_bytes(b"")
        atomic_file.replace(self._snapshot(number), "\n".join([*lines, ""]).encode(), NEW)
        self._seen = _Seen(number, 0, copy, self._seen.before)
        self._tidy()
        return copy

    def _tidy(self) -> None:
        """Remove all files but the newest snapshot and its log."""
        number = self._seen.number
        kept = {"lock", "identity", *([f"{number}.snapshot", f"{number}.log"] if number else [])}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _append(self, record: list[object], durably: bool) -> None:
        if not self._look().number:
            self.replace(0, {})
        seen = self._look()
        body = text_of(record).encode()
        with self._log(seen.number).open("r+b") as file:
            file.truncate(seen.offset)  # cut off a torn line
            file.seek(seen.offset)
            try:
                write(file, _signature(body) + b" " + body + b"\n")
                if durably:
                    os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), seen.offset)
                raise


def write(file: BinaryIO, line: bytes) -> None:
    file.write(line)
    file.flush()


def _signature(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _followed(seen: _Seen, appended: bytes) -> _Seen:
    """Read these bytes of the log, up to the first line that is not whole."""
    for line in appended.split(b"\n")[:-1]:
        body = line[17:]
        if line[:17] != _signature(body) + b" ":
            break
        seen = replace(_after(seen, json.loads(body)), offset=seen.offset + len(line) + 1)
    return seen


def _after(seen: _Seen, record: list[Any]) -> _Seen:
    kind, version, *rest = record
    if kind == "prepare":
        upon, total, *lines = rest
        if upon != seen.committed.version:
            return seen
        state = {**seen.committed.state, **dict(entry_of(line) for line in lines)}
        return replace(seen, prepared={**seen.prepared, version: Copy(version, total, state)})
    if version not in seen.prepared:
        return seen
    return replace(seen, committed=seen.prepared[version], before=seen.committed, prepared={})


def _snapshot(path: Path, document: str) -> Copy | None:
    """The version in a snapshot; None where the file is damaged or of another document."""
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
