"""The board: shared memory in which the runners of a worker say what they do, and the node's clock reads it.

A runner has a file there from before its first claim until after the reply to its last one. It writes there when a body
begins and ends: into memory, no round trip. So the clock has evidence, and never judges by silence:

    no file                    the runner is over
    a later number of a token  the runner has gone on to another claim
    not begun                  the body of this claim has not begun: no time of it has passed, no attempt was made

The worker says there whether it sends task events. The board belongs to one worker and its forks, and has its name. The
next worker removes that of a killed one.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from coordinator.fleet import processes
from coordinator.fleet.run_times import RunTimes

_MEMORY = Path("/dev/shm")
_NAME = "celery-coordinator-"
_NUMBER = 8  # hex digits at the end of a token
_ROOM = 1000  # bytes of a notice
_EVENTS = "events"  # one byte: 1 = the worker sends task events
_KEPT = 60.0  # seconds for which a runner's failure waits for the clock
_LOOKS = 5  # at a notice that is being written; a process may be stopped in the midst of that


class Notice(NamedTuple):
    """The notice of a runner.

    `state`: claiming (no body began yet), begun or ended; over: the runner has no notice any more; failed: it has ended
    by an exception, `why`; unknown: there is no board. `begun`: time.monotonic() when the body of this claim began.
    `limit`: of that body, in seconds, 0 = none. `job_id`, `task`: whose body it is.
    """

    state: str
    token: str = ""
    begun: float = 0.0
    limit: float = 0.0
    why: str = ""
    job_id: str = ""
    task: str = ""

    def is_done(self, token: str) -> bool:
        """Is the runner over, or has it gone on to a later claim?"""
        later = self.token[:-_NUMBER] == token[:-_NUMBER] and self.token[-_NUMBER:] > token[-_NUMBER:]
        return self.state in ("over", "failed") or (bool(self.token) and later)

    def has_begun(self, token: str) -> bool:
        """Did the body of this claim begin? True where nobody can say."""
        return self.state == "unknown" or self.is_done(token) or self.token == token

    def is_overdue(self, token: str) -> bool:
        """Is this very body at work for longer than its limit? True where nobody can say."""
        if self.state != "begun" or self.token != token:
            return self.state == "unknown"
        return 0 < self.limit < time.monotonic() - self.begun


class Pen:
    """A runner writes its notice with it: one file, mapped into memory, so that a word costs no system call."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, before anything is claimed, where there is no room. Without a board it writes nowhere."""
        self._path = path
        self._line = ""
        try:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._map = mmap.mmap(-1, _ROOM)
            return
        try:
            os.write(file, b" " * _ROOM)
            self._map = mmap.mmap(file, _ROOM)
        finally:
            os.close(file)

    def begin(self, token: str, limit: float | None, job_id: str = "", task: str = "") -> None:
        self._line = f"{token} {time.monotonic():.6f} {limit or 0:.3f}\n{job_id}\n{task}"
        self._write("begun")

    def end(self) -> None:
        self._write("ended")

    def fail(self, why: str) -> None:
        """The notice stays, for the clock."""
        self._line = why.encode(errors="replace")[: _ROOM - 20].decode(errors="replace").replace("\n", " ")
        self._write("failed")
        self._map.close()
        with suppress(OSError):
            os.utime(self._path)

    def close(self) -> None:
        self._map.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _write(self, what: str) -> None:
        line = f"{what} {self._line}".encode(errors="replace")[: _ROOM - 10].rstrip()
        self._map[:] = b"%08x %s" % (zlib.crc32(line), line.ljust(_ROOM - 9))


def _whole(text: bytes) -> str | None:
    """The line, unless its runner is just writing it."""
    line = text[9:].rstrip()
    return line.decode(errors="replace") if text[:8] == b"%08x" % zlib.crc32(line) else None


class Board:
    """`times`: how long the jobs of this process run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times = RunTimes(folder)

    @classmethod
    def open(cls) -> Board:
        """The board of the calling process, empty."""
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        name = f"{_NAME}{_pids()}-"
        for left in memory.glob(f"{name}*"):
            if processes.condition(left.name.removeprefix(name)) == "gone":
                shutil.rmtree(left, ignore_errors=True)
        folder = memory / f"{name}{processes.identity()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return cls(folder)

    @cached_property
    def _flag(self) -> mmap.mmap:
        """Shared with the worker's processes, forks or not; nobody else sees it where the worker is gone."""
        try:
            file = os.open(self.folder / _EVENTS, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return mmap.mmap(-1, 1)
        try:
            os.truncate(file, 1)
            return mmap.mmap(file, 1)
        finally:
            os.close(file)

    @property
    def events(self) -> bool:
        """Does the worker send task events now?"""
        return self._flag[0] == 1

    @events.setter
    def events(self, on: bool) -> None:
        self._flag[0] = int(on)

    def pen(self, runner: str) -> Pen:
        return Pen(self.folder / runner)

    def read(self, runner: str) -> Notice:
        for _ in range(_LOOKS):
            try:
                text = (self.folder / runner).read_bytes()
            except FileNotFoundError:
                return Notice("over" if self.folder.exists() else "unknown")
            if not text.strip():
                return Notice("claiming")
            if (line := _whole(text)) is not None:
                state, _, rest = line.partition(" ")
                if state == "failed":
                    return Notice(state, why=rest)
                numbers, _, whose = rest.partition("\n")
                token, begun, limit = numbers.split()
                job_id, _, task = whose.partition("\n")
                return Notice(state, token, float(begun), float(limit), job_id=job_id, task=task)
        return Notice("unknown")

    def at_work(self) -> list[tuple[int, Notice]]:
        """The bodies at work, each with the pid of its process."""
        with suppress(FileNotFoundError):
            names = [path.name for path in self.folder.iterdir() if path.name.count(".") == 2]
            found = [(int(name.partition(".")[0]), self.read(name)) for name in sorted(names)]
            return [(pid, notice) for pid, notice in found if notice.state == "begun"]
        return []

    def remove(self, runner: str) -> None:
        (self.folder / runner).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove the notices of processes that are gone, and those of runners that failed long ago with no job."""
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if path.name.count(".") == 2 and (_is_gone(path) or self._is_stale(path)):
                    path.unlink(missing_ok=True)

    def _is_stale(self, path: Path) -> bool:
        return time.time() - path.stat().st_mtime > _KEPT and self.read(path.name).state == "failed"

    def close(self) -> None:
        """The worker is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_gone(path: Path) -> bool:
    return processes.condition(path.name.rpartition(".")[0]) == "gone"


def _pids() -> str:
    """Names the space of process ids: containers may share memory, and see other processes under the same ids."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
