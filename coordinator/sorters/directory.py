"""Watches a directory, and makes an order of each file that arrives, once.

A file counts if it is a regular file in the directory itself whose name matches the pattern as in a shell (a name with
a leading dot only if the pattern has one). It is complete once its identity (inode, time of change, size) is the same
at two looks. A program that pauses for longer than `poll` while it writes must write elsewhere, or to a dotted name,
and rename.

The order is named as the file; while an order of that id is kept, `<name>@<time of change in ns>`, then
`<name>@<time of change>+2` and so on. A file that is replaced or changed has another identity, and is another order.
Bytes of a name that are no text are written `\\xNN` in the order's id; an id too long for that ends in a digest.

The step that adds an order also notes in Redis the path and the identity of its file. So several watchers add nothing
twice, nor does one watcher after a crash. Redis notes paths as this host has them: watchers on several hosts must mount
a shared directory at the same place. Redis forgets a file that has vanished. While the directory cannot be read, or is
not the directory of the start (not mounted), the watch adds and forgets nothing. It logs each fault of a file once, and
tries again at each look.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.errors import InvalidJob, ShuttingDown, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.texts import escaped

logger = logging.getLogger(__name__)

_REMEMBER_AGAIN = 60.0  # seconds until the watch reads Redis again: it may have been restored from an older file
_LONGEST = 300  # bytes of an order's id, without the suffix that tells it from an earlier one
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class File:
    path: Path
    identity: str
    changed: int


class DirectoryWatch:
    """The watch of a directory. `take(order_id, file)` adds an order, and returns the answer of the step sorter_add.

    `remembered()` reads, and `forget(files)` removes, the files that Redis notes: path -> identity. `marker`:
    directories arrive instead of files; a directory counts once it holds a file of this name, and has its identity.
    """

    def __init__(
        self,
        directory: Path,
        pattern: str,
        take: Callable[[str, File], str],
        remembered: Callable[[], dict[bytes, str]],
        forget: Callable[[Mapping[bytes, str]], None],
        marker: str = "",
    ) -> None:
        if not isinstance(pattern, str) or not pattern or "/" in pattern:
            raise InvalidJob(f"pattern {pattern!r} is for names in the directory itself, as *.xml")
        self._directory = Path(os.path.abspath(directory))
        try:
            self._inode = _inode(self._directory)
            os.scandir(self._directory).close()
        except OSError as error:
            raise InvalidJob(f"cannot watch {self._directory}: {error}") from error
        self._pattern = pattern
        self._marker = marker
        self._take, self._remembered, self._forget = take, remembered, forget
        self._known: dict[bytes, str] | None = None
        self._ask_at = 0.0
        self._before: dict[bytes, str] = {}
        self._failed: dict[bytes, str] = {}
        self._unseen: dict[bytes, str] = {}
        self._trouble = ""

    def run(self, poll: float, stop: threading.Event) -> None:
        validation.limit("poll", poll)
        self.step()
        while not stop.wait(poll):
            self.step()

    def step(self) -> None:
        """Look once. Logs an obstacle once; the next look tries again."""
        try:
            if self._known is None or time.monotonic() >= self._ask_at:
                self._known, self._ask_at = self._remembered(), time.monotonic() + _REMEMBER_AGAIN
            self._look(self._known)
            self._trouble = ""
        except (StoreUnavailable, StoreRefused, OSError) as error:
            if isinstance(error, StoreUnavailable):
                self._known = None
            if str(error) != self._trouble:
                logger.warning("watching %s: %s; trying again", self._directory, error)
            self._trouble = str(error)

    def _look(self, known: dict[bytes, str]) -> None:
        """Add the new files, and forget those that vanished. `known` was read before the directory is."""
        if _inode(self._directory) != self._inode:
            raise OSError("it is another directory than at the start; start anew if it is the right one")
        names = set()
        files: dict[bytes, File] = {}
        unseen: dict[bytes, str] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                path = os.fsencode(entry.path)
                names.add(path)
                try:
                    if self._matches(entry.name) and (file := _file(entry, self._marker)):
                        files[path] = file
                except OSError as error:  # nobody may read it, or its link leads in a circle: it keeps no other waiting
                    unseen[path] = str(error)
        self._log_unseen(unseen)
        self._drop(known, names)
        ripe = {path for path, file in files.items() if self._before.get(path) == file.identity != known.get(path)}
        self._before = {path: file.identity for path, file in files.items()}
        for path in sorted(ripe):
            if self._add(files[path]):
                known[path] = files[path].identity
                self._failed.pop(path, None)
        self._failed = {path: identity for path, identity in self._failed.items() if path in files}

    def _log_unseen(self, unseen: dict[bytes, str]) -> None:
        for path, error in unseen.items():
            if self._unseen.get(path) != error:
                logger.warning("watching %s: %s; trying again", self._directory, error)
        self._unseen = unseen

    def _matches(self, name: str) -> bool:
        dotted = name.startswith(".") and not self._pattern.startswith(".")
        return not dotted and fnmatch.fnmatchcase(name, self._pattern)

    def _add(self, file: File) -> bool:
        try:
            answers = (self._take(order_id, file) for order_id in order_ids(file))
            return next(answer for answer in answers if answer != "duplicate") in ("collected", "seen")
        except (StoreUnavailable, StoreRefused, ShuttingDown):
            raise
        except Exception:
            path = os.fsencode(file.path)
            if self._failed.get(path) != file.identity:
                logger.exception("no order can be made of %r; trying again each time", str(file.path))
            self._failed[path] = file.identity
            return False

    def _drop(self, known: dict[bytes, str], names: set[bytes]) -> None:
        here = os.path.join(os.fsencode(self._directory), b"")
        absent = [path for path in known if path.startswith(here) and b"/" not in path[len(here) :]]
        gone = [path for path in absent if path not in names and not os.path.lexists(path)]
        for chunk in (gone[start : start + _CHUNK] for start in range(0, len(gone), _CHUNK)):
            self._forget({path: known[path] for path in chunk})
            for path in chunk:
                del known[path]


def order_ids(file: File) -> Iterator[str]:
    """Yield ids for a file's order: the first that is free names it. Skips names that have the form of a tick's id."""
    name = escaped(os.fsencode(file.path.name).decode(errors="backslashreplace"))
    if len(name.encode()) > _LONGEST:
        digest = hashlib.sha256(os.fsencode(file.path.name)).hexdigest()[:16]
        name = f"{name.encode()[: _LONGEST - 17].decode(errors='ignore')}~{digest}"
    if not validation.is_reserved(name):
        yield name
    yield f"{name}@{file.changed}"
    yield from (f"{name}@{file.changed}+{number}" for number in itertools.count(2))


def _file(entry: os.DirEntry[str], marker: str) -> File | None:
    """Read a file; None for anything else, or where it has vanished. With a marker, read a directory that holds it."""
    try:
        if not (entry.is_dir() if marker else entry.is_file()):
            return None
        status = os.stat(os.path.join(entry.path, marker) if marker else entry.path)
        if not stat.S_ISREG(status.st_mode):
            return None
    except FileNotFoundError:
        return None
    return File(Path(entry.path), f"{status.st_ino} {status.st_mtime_ns} {status.st_size}", status.st_mtime_ns)


def _inode(directory: Path) -> int:
    """The directory's inode. It identifies the directory alone, since a device's number may change at each mount."""
    return os.stat(directory).st_ino
