"""The copies of one document on this machine's disk: a snapshot, and a log of the changes since.

    <folder>/<document>/<n>.snapshot   a version: a line that names document, version, sum and checksum, then one line
                                       for each entry, sorted: `["entry",fence,value]`
    <folder>/<document>/<n>.log        the versions since: a line when one is prepared, and one when it is committed
    <folder>/<document>/identity       a name of this folder alone, among all of the replica set

Each line of a log begins with a checksum of its own. A line that is torn, and all lines behind it, count as none. A
snapshot counts as none if its entries do not have its sum. A commit costs what it changes; once the log is longer than
the snapshot, a new snapshot replaces both.

One process keeps the folder, and writes. Others read what was appended since they last looked.
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

from coordinator.documents import atomic_file, former_copies
from coordinator.documents.copy import ANY, SUM, Copy, State, checksum, entry_of, line_of, sum_after, sum_of, text_of

SMALL_LOG = 64 * 1024
"""A log of fewer bytes is never worth a snapshot."""
NEW = "new"  # one name for all new files, so that the next one overwrites a killed process's
_NONE = Copy(0, SUM + "0", {})


@dataclass(frozen=True)
class _Seen:
    """A process has read up to `offset` of the log of snapshot `number`. The copies here have their sums.

    `checksum`: that of the committed version, as Redis told it. `before`: the version that was committed before it.
    """

    number: int = 0
    offset: int = 0
    committed: Copy = _NONE
    checksum: str = ""
    before: Copy = _NONE
    prepared: Mapping[int, tuple[Copy, str]] = field(default_factory=dict)
    """By version: the copy, and its checksum as it was reported."""


class Copies:
    """The folder of one document. A torn line, and a file that somebody changed, count as none."""

    def __init__(self, folder: Path, document: str) -> None:
        self.document = document
        self.folder = folder / document.replace("/", "%2F")
        self.keeper = folder.name
        self._seen = _Seen()  # replaced as a whole, so that threads and forks need no lock

    @property
    def member(self) -> str:
        """The keeper as a member of the replica set: "<name>#<identity>"; without an identity, its name."""
        with suppress(OSError):
            return f"{self.keeper}#{(self.folder / 'identity').read_text().strip()}"
        return self.keeper

    def committed(self) -> tuple[int, str]:
        """The version that this machine knows as committed, and its checksum; (0, "") before there is one."""
        seen = self._look()
        return seen.committed.version, seen.checksum

    def prepared(self) -> Copy | None:
        """The latest version that was prepared upon the committed one, with the checksum that was reported."""
        seen = self._look()
        if not seen.prepared:
            return None
        copy, told = seen.prepared[max(seen.prepared)]
        return replace(copy, sha=told)

    def versions(self) -> list[int]:
        """The versions that can be read, in order."""
        seen = self._look()
        return sorted({seen.before.version, seen.committed.version, *seen.prepared} - {0})

    def read(self, version: int, sha: str = "") -> Copy | None:
        """None where the version is missing, damaged, or has another checksum; any will do for the `sha` "" or "-"."""
        seen = self._look()
        known = {seen.before.version: seen.before, seen.committed.version: seen.committed}
        known |= {number: copy for number, (copy, _) in seen.prepared.items()}
        found = known.get(version) if version else None
        if found is None or sha in (*ANY, found.sha):
            return found
        if sha.startswith(SUM) or checksum(sha, self.document, version, found.state) != sha:
            return None
        return replace(found, sha=sha)

    def _look(self) -> _Seen:
        """Read what was appended, or everything where another snapshot took the place of the one that was read."""
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
        # The keeper may have cut off a line that it could not flush, and written another in its place.
        lost = size < seen.offset or (after is seen and b"\n" in appended)
        self._seen = self._loaded() if lost or not size else after
        return self._seen

    def _loaded(self) -> _Seen:
        for number in sorted(self._numbers(), reverse=True):
            if (snapshot := _snapshot(self._snapshot(number), self.document)) is None:
                continue
            seen = _Seen(number, 0, *snapshot)
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
        """Give the folder an identity, unless it has one, or in any case `anew`. Raises OSError."""
        if anew or self.member in (self.keeper, f"{self.keeper}#"):
            atomic_file.replace(self.folder / "identity", f"{uuid.uuid4().hex[:12]}\n".encode(), NEW)

    def begin(self) -> None:
        """Read the disk anew, and take over the files of earlier versions of this library. Raises OSError."""
        self._seen = self._loaded()
        if not self._seen.number and (former := former_copies.read(self.folder, self.document)):
            committed, prepared = former
            self.replace(committed.version, committed.state, committed.sha)
            if prepared:
                changes = {entry: raw for entry, raw in prepared.state.items() if committed.state.get(entry) != raw}
                self.prepare(prepared.version, changes, prepared.sha)
        self._tidy()

    def prepare(self, version: int, changes: State, kind: str) -> Copy:
        """Append a version durably. Returns it with its checksum of that kind. Raises OSError, and nothing is there."""
        upon = self._look().committed
        total = told = sum_after(upon.sha, upon.state, changes)
        if not kind.startswith(SUM):
            told = checksum(kind, self.document, version, {**upon.state, **changes})
        self._append(["prepare", version, upon.version, total, told, *(line_of(*one) for one in changes.items())], True)
        return replace(self._look().prepared[version][0], sha=told)

    def commit(self, version: int, sha: str) -> Copy:
        """Note a prepared version as committed. Raises OSError.

        A commit that a power cut took from the disk is told again: its version is there as prepared.
        """
        self._append(["commit", version, sha], False)
        seen = self._look()
        if self._log(seen.number).stat().st_size > max(SMALL_LOG, self._snapshot(seen.number).stat().st_size):
            with suppress(OSError):  # the log goes on
                self.replace(version, seen.committed.state, sha)
        return replace(seen.committed, sha=sha)

    def replace(self, version: int, state: State, sha: str) -> Copy:
        """Begin anew with a snapshot of this committed version. Raises OSError, and what was there stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number, total = max([0, *self._numbers()]) + 1, sum_of(state)
        lines = [text_of({"document": self.document, "version": version, "sum": total, "checksum": sha})]
        lines += [line_of(entry, state[entry]) for entry in sorted(state)]
        self._log(number).write_bytes(b"")
        atomic_file.replace(self._snapshot(number), "\n".join([*lines, ""]).encode(), NEW)
        self._seen = _Seen(number, 0, Copy(version, total, dict(state)), sha, self._seen.before)
        self._tidy()
        return Copy(version, sha, self._seen.committed.state)

    def _tidy(self) -> None:
        """Remove all files but the newest snapshot and its log."""
        number = self._seen.number
        kept = {"lock", "identity", *([f"{number}.snapshot", f"{number}.log"] if number else [])}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _append(self, what: list[object], durably: bool) -> None:
        if not self._look().number:
            self.replace(0, {}, "")
        seen = self._look()
        body = text_of(what).encode()
        with self._log(seen.number).open("r+b") as file:
            file.truncate(seen.offset)  # a torn line
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


def _after(seen: _Seen, told: list[Any]) -> _Seen:
    what, version, *rest = told
    if what == "prepare":
        upon, total, sha, *lines = rest
        if upon != seen.committed.version:
            return seen
        state = {**seen.committed.state, **dict(entry_of(line) for line in lines)}
        return replace(seen, prepared={**seen.prepared, version: (Copy(version, total, state), sha)})
    if version not in seen.prepared:
        return seen
    copy, _ = seen.prepared[version]
    return replace(seen, committed=copy, checksum=rest[0], before=seen.committed, prepared={})


def _snapshot(path: Path, document: str) -> tuple[Copy, str] | None:
    """The version in a snapshot, and its checksum as Redis told it; None where the file is no good one."""
    try:
        head, *lines = path.read_bytes().decode().split("\n")
        about = json.loads(head)
        state = dict(entry_of(line) for line in takewhile(bool, lines))
    except (OSError, ValueError, IndexError):
        return None
    if about.get("document") != document or about.get("sum") != sum_of(state):
        return None
    return Copy(about["version"], about["sum"], state), about["checksum"]
