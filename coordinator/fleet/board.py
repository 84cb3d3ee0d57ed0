"""The board: files in shared memory, in which a worker's runners write their state for the node's clock.

A runner keeps a file there from before its first claim until after the reply to its last one. It notes when a task's
body begins and ends; that is a write into memory, without a round trip. So the clock never judges by silence:

    no file                    the runner has ended
    a token of a later number  the runner has gone on to another claim
    not begun                  the body of this claim has not begun: its time limit does not run, no attempt was made

The worker also writes there whether it sends task events, whether it stops, and when it has looked at its signals. A
board belongs to one worker and its
forks. Its name has the worker's pid and birth, since a worker that SIGHUP restarts keeps its pid. The next worker
removes the board of a killed one.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.fleet import processes
from coordinator.fleet.measures import ENDING, Measures

_MEMORY = Path("/dev/shm")
_NAME = "celery-coordinator-"
_NUMBER = 8  # hex digits at the end of a token that count the runner's claims
_ROOM = 1000  # size of a notice in bytes
_FLAGS = "worker"  # three bytes: 1 = it sends task events, 1 = it stops, a number that grows with each of its looks
_KEPT = 60.0  # seconds for which the notice of a failed runner is kept for the clock
_READS = 5  # tries at a notice that is being written; its process may be stopped in the middle of a write


class Notice(NamedTuple):
    """The notice of a runner.

    `state`: claiming (no body began yet), begun or ended; over: the runner removed its notice; failed: an exception
    (`why`) ended the runner; signalled: a signal to its process did; unknown: there is no board. `begun`:
    time.monotonic() when the body of this claim began. `limit`: the body's time limit in seconds, 0 = none. `job_id`,
    `task`: the job and task of the body.
    """

    state: str
    token: str = ""
    begun: float = 0.0
    limit: float = 0.0
    why: str = ""
    job_id: str = ""
    task: str = ""

    def is_done(self, token: str) -> bool:
        """True if the runner has ended, or has gone on to a later claim."""
        later = self.token[:-_NUMBER] == token[:-_NUMBER] and self.token[-_NUMBER:] > token[-_NUMBER:]
        return self.state in ("over", "failed", "signalled") or (bool(self.token) and later)

    def has_begun(self, token: str) -> bool:
        """True if the body of this claim began, or there is no evidence."""
        return self.state == "unknown" or self.is_done(token) or self.token == token

    def is_overdue(self, token: str) -> bool:
        """True if the body of this claim has run for longer than its limit, or there is no evidence."""
        if self.state != "begun" or self.token != token:
            return self.state == "unknown"
        return 0 < self.limit < time.monotonic() - self.begun


class NoticeWriter:
    """Writes a runner's notice into a file mapped into memory, so that a write costs no system call."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, before the first claim, if the memory is full. Without a board, writes go nowhere."""
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

    def fail(self, why: str, signalled: bool = False) -> None:
        """Write why the runner failed. The notice stays for the clock to read."""
        self._line = why.encode(errors="replace")[: _ROOM - 20].decode(errors="replace").replace("\n", " ")
        self._write("signalled" if signalled else "failed")
        self._map.close()
        with suppress(OSError):
            os.utime(self._path)

    def close(self) -> None:
        """Remove the notice."""
        self._map.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _write(self, state: str) -> None:
        line = f"{state} {self._line}".encode(errors="replace")[: _ROOM - 10].rstrip()
        self._map[:] = b"%08x %s" % (zlib.crc32(line), line.ljust(_ROOM - 9))


def _whole(text: bytes) -> str | None:
    """The line of a notice; None while its runner is writing it: then the checksum is wrong."""
    line = text[9:].rstrip()
    return line.decode(errors="replace") if text[:8] == b"%08x" % zlib.crc32(line) else None


class Board:
    """The board of one worker. `measures`: how long the jobs of this process wait and run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.measures = Measures(folder)
        self._flags = _shared(folder / _FLAGS, 3)

    @classmethod
    def open(cls) -> Board:
        """Create an empty board for the calling process, and remove those of dead workers."""
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        name = f"{_NAME}{_pids()}-"
        for folder in memory.glob(f"{name}*"):
            if processes.condition(".".join(folder.name.removeprefix(name).split(".")[:2])) == "gone":
                shutil.rmtree(folder, ignore_errors=True)
        return cls(Path(tempfile.mkdtemp("", f"{name}{processes.identity()}.", memory)))

    @property
    def events(self) -> bool:
        """True while the worker sends task events."""
        return self._flags[0] == 1

    @events.setter
    def events(self, on: bool) -> None:
        self._flags[0] = int(on)

    @property
    def stops(self) -> bool:
        """True once the worker stops."""
        return self._flags[1] == 1

    @stops.setter
    def stops(self, on: bool) -> None:
        self._flags[1] = int(on)

    @property
    def looks(self) -> int:
        """Changes with each look of the worker's main process at its own state."""
        return self._flags[2]

    def look(self, stops: bool) -> None:
        """The main process has looked: whether it stops is up to date for all signals that came before."""
        self.stops = self.stops or stops
        self._flags[2] = (self._flags[2] + 1) % 256

    def pen(self, runner: str) -> NoticeWriter:
        return NoticeWriter(self.folder / runner)

    def read(self, runner: str) -> Notice:
        for _ in range(_READS):
            try:
                text = (self.folder / runner).read_bytes()
            except FileNotFoundError:
                return Notice("over" if self.folder.exists() else "unknown")
            if not text.strip():
                return Notice("claiming")
            if (line := _whole(text)) is not None:
                state, _, rest = line.partition(" ")
                if state in ("failed", "signalled"):
                    return Notice(state, why=rest)
                numbers, _, names = rest.partition("\n")
                token, begun, limit = numbers.split()
                job_id, _, task = names.partition("\n")
                return Notice(state, token, float(begun), float(limit), job_id=job_id, task=task)
        return Notice("unknown")

    def notices(self) -> list[tuple[str, Notice]]:
        """The notice of each runner."""
        with suppress(FileNotFoundError):
            paths = sorted(self.folder.iterdir())
            return [(path.name, self.read(path.name)) for path in paths if _is_notice(path)]
        return []

    def at_work(self) -> list[tuple[int, Notice]]:
        """The notices of all bodies that run now, each with the pid of its process."""
        begun = ((runner, notice) for runner, notice in self.notices() if notice.state == "begun")
        return [(int(runner.partition(".")[0]), notice) for runner, notice in begun]

    def remove(self, runner: str) -> None:
        (self.folder / runner).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove the notices of dead processes, and old ones of failed runners that no clock has removed."""
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if _is_notice(path) and (_is_gone(path) or self._is_stale(path)):
                    path.unlink(missing_ok=True)

    def _is_stale(self, path: Path) -> bool:
        return time.time() - path.stat().st_mtime > _KEPT and self.read(path.name).state in ("failed", "signalled")

    def close(self) -> None:
        """Remove the board."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _shared(path: Path, size: int) -> mmap.mmap:
    """Memory that all processes of the worker share; private memory if the worker is gone."""
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return mmap.mmap(-1, size)
    try:
        os.truncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _is_notice(path: Path) -> bool:
    return path.name.count(".") == 2 and path.suffix != ENDING


def _is_gone(path: Path) -> bool:
    return processes.condition(path.name.rpartition(".")[0]) == "gone"


def _pids() -> str:
    """The id of the pid namespace: containers may share memory, yet use the same pids for different processes."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
