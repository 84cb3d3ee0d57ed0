"""Watches a directory, and adds one order (a job that a sorter holds) for each file that arrives.

A file is used if it is a regular file in the directory itself whose name matches the shell pattern; a name with a
leading dot matches only a pattern with one. A file is complete once its identity (inode, time of change, size) is the
same at two polls in a row. A program that pauses for longer than `poll` while it writes must write elsewhere, or to a
name with a leading dot, and rename the file at the end.

The order's id is the file's name; if an order of that id exists, `<name>@<time of change in ns>`, then `<name>@<time of
change>+2` and so on. A file that is replaced or changed has a new identity, and gets a new order. Bytes of a name that
are not UTF-8 are written as `\\xNN` in the id; an id that is too long is cut, and ends in a digest.

The Redis step that adds an order also stores the path and identity of the file. So several watchers, or a watcher after
a crash, add no order twice. Watchers on several hosts must mount a shared directory at the same path. When a file has
vanished, Redis deletes its entry. While the directory cannot be read, or is not the one that was there at the start (a
mount is missing), the watcher adds and deletes nothing. The watcher logs each error once, and tries again at each poll.
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

from coordinator.core.jobs import validation
from coordinator.core.texts import escaped
from coordinator.errors import InvalidJob, ShuttingDown, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

_REMEMBER_AGAIN = 60.0  # seconds until the known files are read from Redis again, in case a backup was restored
_LONGEST = 300  # bytes of an order's id, without the suffix `@<time of change>`
_CHUNK = 500  # vanished files that one step deletes from Redis


@dataclass(frozen=True, slots=True)
class File:
    """A file for which an order is made. `identity`: inode, time of change and size; `changed`: ns since 1970."""

    path: Path
    identity: str
    changed: int


class DirectoryWatch:
    """Watches `directory` for files whose names match `pattern`, and calls `take` for each new one.

    `take(order_id, file)` adds an order, and returns `collected`, `duplicate` (the id exists) or `seen` (the file has
    its order). `remembered()` reads from Redis the files that have orders, path -> identity; `forget(files)` deletes
    some of these. `marker`: if not "", subdirectories are used instead of files, each once it contains a file of this
    name, whose identity stands for the subdirectory.
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
            raise InvalidJob(f"pattern {pattern!r}: give a shell pattern without /, such as *.xml")
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
        """Poll the directory once. An error that prevents this is logged once; the next poll tries again."""
        try:
            if self._known is None or time.monotonic() >= self._ask_at:
                self._known, self._ask_at = self._remembered(), time.monotonic() + _REMEMBER_AGAIN
            self._scan(self._known)
            self._trouble = ""
        except (StoreUnavailable, StoreRefused, OSError) as error:
            if isinstance(error, StoreUnavailable):
                self._known = None
            if str(error) != self._trouble:
                logger.warning("watching %s: %s; trying again", self._directory, error)
            self._trouble = str(error)

    def _scan(self, known: dict[bytes, str]) -> None:
        """Add orders for the new files of the directory, and make Redis forget those that vanished.

        `known`: path -> identity of the files that have orders, read from Redis before this call reads the directory.
        """
        if _inode(self._directory) != self._inode:
            raise OSError("this path is another directory than at the start; if that is intended, restart the watch")
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
                except OSError as error:  # not readable, or a circular link: the other files are still handled
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
                logger.exception("cannot make an order of the file %r; trying again at each poll", str(file.path))
            self._failed[path] = file.identity
            return False

    def _drop(self, known: dict[bytes, str], names: set[bytes]) -> None:
        folder = os.path.join(os.fsencode(self._directory), b"")
        absent = [path for path in known if path.startswith(folder) and b"/" not in path[len(folder) :]]
        gone = [path for path in absent if path not in names and not os.path.lexists(path)]
        for chunk in (gone[start : start + _CHUNK] for start in range(0, len(gone), _CHUNK)):
            self._forget({path: known[path] for path in chunk})
            for path in chunk:
                del known[path]


def order_ids(file: File) -> Iterator[str]:
    """Yield possible ids for the order of a file, without end; the caller uses the first that no order has. The file's
    name alone is left out if it has the form of a tick's id.
    """
    name = escaped(os.fsencode(file.path.name).decode(errors="backslashreplace"))
    if len(name.encode()) > _LONGEST:
        digest = hashlib.sha256(os.fsencode(file.path.name)).hexdigest()[:16]
        name = f"{name.encode()[: _LONGEST - 17].decode(errors='ignore')}~{digest}"
    if not validation.is_reserved(name):
        yield name
    yield f"{name}@{file.changed}"
    yield from (f"{name}@{file.changed}+{number}" for number in itertools.count(2))


def _file(entry: os.DirEntry[str], marker: str) -> File | None:
    """Read the identity of a regular file; None if `entry` is none, or has vanished. With `marker`, a directory that
    contains a file of that name.
    """
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
    """The inode of the directory, without the device's number, which may change at each mount."""
    return os.stat(directory).st_ino
