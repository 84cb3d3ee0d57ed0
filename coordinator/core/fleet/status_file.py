"""The runner status file: memory that a worker shares with its pool and supervisor, where runners write their state.

Each runner has a row in the file, from before its first claim until after the reply to its last request to Redis. The
runner writes there when the body of a task begins and ends, into memory and without a request to Redis. The supervisor
reads from the row of a runner what has become of one of the runner's claims:

    the state `over`, or no row         the runner has ended
    a token with a higher number        the runner has gone on to a later claim
    another token, or none              the task of this claim has not begun: its time limit does not run yet, and if
                                        the process ends now, that is no attempt

The head of the file says whether the worker sends task events, whether it is stopping, how often it has checked its
signals, and when Redis last answered the supervisor.

The file has no name. The processes of the pool inherit its memory map, and the worker passes its descriptor to each
supervisor that it starts. So no other program can remove the file, and a process that cannot open or write files any
more can still write to the map. A folder belongs to the file, with data that may get lost: measures, a file that shows
that the worker lives, and the identity of each companion. The name of the folder has the worker's pid and start time,
since a worker that restarts at SIGHUP keeps its pid. After a worker was killed, the next worker removes its folder.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import struct
import tempfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.core.fleet import processes
from coordinator.core.fleet.measures import Measures

_MEMORY = Path("/dev/shm")
_NAME = "celery-coordinator-"
_NUMBER = 8  # hex digits at the end of a token that count the runner's claims
# Byte offsets in the head of the file: 1 if the worker sends task events; 1 if the worker is stopping; a counter of the
# worker's checks of its signals, modulo 256; how many rows were ever taken (an int); the time.monotonic() of Redis'
# last answer to the supervisor (a double); the end of the head.
_EVENTS, _STOPS, _LOOKS, _USED, _ANSWER, _HEAD = 0, 1, 2, 4, 8, 16
_ALIVE = "worker"  # name of the file that changes at each check of the worker's signals, for a health probe
_ROW_SIZE = 1000  # bytes
_ROWS = 10_000  # how many runners of one worker may run at once; a row uses memory only once it is taken
_KEPT = 60.0  # seconds for which the status of a failed runner is kept
_READS = 5  # tries to read a row that is being written: a process may be stopped in the middle of that
_PATIENCE = 1.0  # seconds to wait for the lock on the file, while other processes take or free rows


class RunnerStatus(NamedTuple):
    """The status of a runner, as read from its row.

    `state`: claiming (no task has begun yet); begun or ended (the body of the current claim's task); over (the runner
    has ended); failed (an exception ended the runner: `why`); signalled (a signal to its process ended the runner);
    unknown (the row cannot be read). `runner`: its id, "<pid>.<birth>.<row>.<name>". `token`: of its current claim.
    `begun`: time.monotonic() when the body began, or the runner failed. `limit`: the time limit of the body in seconds,
    0: none. `job_id`, `task`: of the current claim.
    """

    state: str
    runner: str = ""
    token: str = ""
    begun: float = 0.0
    limit: float = 0.0
    why: str = ""
    job_id: str = ""
    task: str = ""

    @property
    def process(self) -> str:
        return ".".join(self.runner.split(".")[:2])

    def is_done(self, token: str) -> bool:
        """True if the runner has finished the claim with this token: it has ended, or has gone on to a later claim."""
        later = self.token[:-_NUMBER] == token[:-_NUMBER] and self.token[-_NUMBER:] > token[-_NUMBER:]
        return self.state in ("over", "failed", "signalled") or (bool(self.token) and later)

    def has_begun(self, token: str) -> bool:
        """True if the body of the claim with this token has begun, or if the row cannot be read."""
        return self.state == "unknown" or self.is_done(token) or self.token == token

    def is_overdue(self, token: str) -> bool:
        """True if the body of the claim with this token has run for longer than its time limit, or if the row cannot be
        read.
        """
        if self.state != "begun" or self.token != token:
            return self.state == "unknown"
        return 0 < self.limit < time.monotonic() - self.begun


class StatusWriter:
    """Writes the status of a runner into a row of the status file, as a write to memory without a system call. The
    runners of one process use the same writer and row, one after the other.
    """

    def __init__(self, status_file: StatusFile, row: int, process: str) -> None:
        self._status_file, self._row, self._process = status_file, row, process
        self.runner = ""
        self._claim, self._work = _claim("", 0.0), ""

    def start(self, name: str) -> str:
        """Write the status of a new runner, called `name`, which has claimed no job yet; return the runner's id."""
        self.runner = f"{self._process}.{self._row}.{name}"
        self._claim, self._work = _claim("", 0.0), ""
        self._write("claiming")
        return self.runner

    def begin(self, token: str, limit: float | None, job_id: str = "", task: str = "") -> None:
        """Write that the body of a task begins. `token`: of the claim; `limit`: its time limit in seconds or None."""
        self._claim, self._work = _claim(token, limit or 0.0), f"{job_id}\n{task}"
        self._write("begun")

    def end(self) -> None:
        self._write("ended")

    def fail(self, why: str, signalled: bool = False) -> None:
        """Write why the runner failed. The row keeps this for the supervisor: no other runner of the process gets it.
        `signalled`: True if a signal is ending the process.
        """
        self._claim = _claim("", 0.0)
        self._work = why.encode(errors="replace")[: _ROW_SIZE - 200].decode(errors="replace").replace("\n", " ")
        self._write("signalled" if signalled else "failed")

    def close(self) -> None:
        """Write that the runner has ended, and give the writer back for the next runner of the process."""
        self._write("over")
        self._status_file.give_back(self, self._process)

    def _write(self, state: str) -> None:
        self._status_file.write(self._row, f"{state} {self.runner} {self._claim}\n{self._work}")


def _claim(token: str, limit: float) -> str:
    return f"{token} {time.monotonic():.6f} {limit:.3f}"


class StatusFile:
    """The status file of one worker. `fd`: its file descriptor; `folder`: the folder that belongs to it; `measures`:
    counts how long the jobs of this process wait and run.
    """

    def __init__(self, folder: Path, fd: int) -> None:
        self.folder, self.fd = folder, fd
        self._file = os.fstat(fd)
        self.measures = Measures(folder)
        self._map = mmap.mmap(fd, _HEAD + (_ROWS + 1) * _ROW_SIZE)
        self._writers: dict[str, deque[StatusWriter]] = {}  # by process: the writers that no runner uses now
        self._taking = threading.Lock()

    @classmethod
    def open(cls) -> StatusFile:
        """Create an empty status file and its folder for the calling worker, and remove the folders of dead workers.
        Raises OSError.
        """
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        name = f"{_NAME}{_pids()}-"
        for folder in memory.glob(f"{name}*"):
            if processes.condition(".".join(folder.name.removeprefix(name).split(".")[:2])) == "gone":
                shutil.rmtree(folder, ignore_errors=True)
        return cls(Path(tempfile.mkdtemp("", f"{name}{processes.identity()}.", memory)), anonymous_file(memory))

    @property
    def events(self) -> bool:
        """True while the worker sends task events."""
        return self._map[_EVENTS] == 1

    @events.setter
    def events(self, on: bool) -> None:
        self._map[_EVENTS] = int(on)

    @property
    def stops(self) -> bool:
        """True once the worker has begun to shut down."""
        return self._map[_STOPS] == 1

    @stops.setter
    def stops(self, on: bool) -> None:
        self._map[_STOPS] = int(on)

    @property
    def looks(self) -> int:
        """How often the worker's main process has checked its signals (calls of `look`), modulo 256."""
        return self._map[_LOOKS]

    def look(self, stops: bool) -> None:
        """Count one check of its signals by the worker's main process, which calls this regularly. `stops`: True if the
        worker shuts down, as the check showed; a later False does not take that back.

        Also changes the file by which a health probe sees that the worker lives, and creates the file's folder again if
        another program has removed it from /dev/shm.
        """
        self.stops = self.stops or stops
        self._map[_LOOKS] = (self._map[_LOOKS] + 1) % 256
        with suppress(OSError):
            self.folder.mkdir(0o700, exist_ok=True)
            file = os.open(self.folder / _ALIVE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, self._map[_LOOKS : _LOOKS + 1])  # overwrites one byte, which works in a full /dev/shm
            finally:
                os.close(file)

    @property
    def last_answer(self) -> float:
        """The time.monotonic() at which Redis last answered the supervisor."""
        (at,) = struct.unpack_from("d", self._map, _ANSWER)
        return float(at)

    @last_answer.setter
    def last_answer(self, at: float) -> None:
        struct.pack_into("d", self._map, _ANSWER, at)

    def writer(self, process: str = "") -> StatusWriter:
        """Return a writer for a new runner. `process`: the identity of its process, "": this one. Raises OSError if no
        row is free.
        """
        process = process or processes.identity()
        try:
            return self._writers.setdefault(process, deque()).pop()
        except IndexError:
            return StatusWriter(self, self._take(process), process)

    def give_back(self, writer: StatusWriter, process: str) -> None:
        """Keep the writer of a runner that has ended for the next runner of the same process."""
        self._writers[process].append(writer)

    def read(self, runner: str) -> RunnerStatus:
        """Read the status of a runner, by its id. The state is `over` if the row is empty or names a later runner:
        every runner writes its row before its first claim.
        """
        status = self._at(_row_of(runner))
        return status if status.state == "unknown" or status.runner == runner else RunnerStatus("over")

    def statuses(self) -> list[tuple[str, RunnerStatus]]:
        """Read all rows in use: the id and the status of each runner."""
        rows = (self._at(row) for row in range(self._used))
        return [(status.runner, status) for status in rows if status.runner]

    def at_work(self) -> list[tuple[int, RunnerStatus]]:
        """Read the rows of the runners that run the body of a task now: pid of the process, and status."""
        begun = ((runner, status) for runner, status in self.statuses() if status.state == "begun")
        return [(int(runner.partition(".")[0]), status) for runner, status in begun]

    def remove(self, runner: str) -> None:
        """Free the row of a runner, by its id."""
        self._clear([_row_of(runner)])

    def clean(self) -> None:
        """Free the rows of dead processes, and the rows of runners that failed more than a minute ago."""
        old = time.monotonic() - _KEPT
        self._clear(
            [
                _row_of(runner)
                for runner, status in self.statuses()
                if (status.begun < old and status.state in ("failed", "signalled"))
                or (status.state != "failed" and processes.condition(status.process) == "gone")
            ]
        )

    def failure(self) -> str:
        """Return the error of the runner that failed last; "" if none failed in the last minute."""
        failed = [(status.begun, status.why) for _, status in self.statuses() if status.state == "failed"]
        return max(failed, default=(0.0, ""))[1]

    def close(self) -> None:
        """Remove the folder of the file, unmap the file and close its descriptor."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._map.close()
        os.close(self.fd)

    def write(self, row: int, text: str) -> None:
        """Write `text` into a row, with a checksum by which readers recognize a half-written row."""
        line = text.encode(errors="replace")[: _ROW_SIZE - 10].rstrip()
        start = _HEAD + row * _ROW_SIZE
        self._map[start : start + _ROW_SIZE] = b"%08x %s" % (zlib.crc32(line), line.ljust(_ROW_SIZE - 9))

    @property
    def _used(self) -> int:
        """How many rows were ever taken: rows from this number on are empty."""
        (used,) = struct.unpack_from("i", self._map, _USED)
        return int(used)

    def _at(self, row: int) -> RunnerStatus:
        """Read a row, whichever runner it belongs to; the state is `over` for an empty row."""
        start = _HEAD + row * _ROW_SIZE
        for _ in range(_READS):
            text = self._map[start : start + _ROW_SIZE]
            if not text[0]:
                return RunnerStatus("over")
            line = text[9:].rstrip()
            if text[:8] == b"%08x" % zlib.crc32(line):  # otherwise the runner is just writing the row: read it again
                return _parsed(line.decode(errors="replace"))
        return RunnerStatus("unknown")

    def _take(self, process: str) -> int:
        """Reserve a free row for a process, and return its number. Writes the row with `pwrite` first, which raises
        OSError if the memory is full; a write into the map would end the process by SIGBUS.
        """
        with self._locked(_PATIENCE):
            used = self._used
            free = (row for row in range(used) if not self._map[_HEAD + row * _ROW_SIZE])
            row = next(free, used)
            if row == _ROWS:
                raise OSError(errno.ENOSPC, f"{_ROWS} runners run in this worker: its status file has no row for more")
            os.pwrite(self.fd, bytes(_ROW_SIZE), _HEAD + row * _ROW_SIZE)
            self.write(row, f"over {process}.{row}. {_claim('', 0.0)}")
            struct.pack_into("i", self._map, _USED, max(used, row + 1))
        return row

    def _clear(self, rows: list[int]) -> None:
        """Free the rows of runners that have ended. Does nothing while another process takes or frees a row: a later
        call frees them.
        """
        if rows:
            with suppress(BlockingIOError), self._locked(0.0):
                for row in rows:
                    start = _HEAD + row * _ROW_SIZE
                    self._map[start : start + _ROW_SIZE] = bytes(_ROW_SIZE)

    @contextmanager
    def _locked(self, seconds: float) -> Iterator[None]:
        """Lock the file against other processes and threads that take or free a row; the system releases the lock if
        the process ends. Raises BlockingIOError if the lock is not free within `seconds`, and OSError if a task has
        closed the file's descriptor, whose number may be that of another file by now.
        """
        if not os.path.samestat(os.fstat(self.fd), self._file):
            raise OSError(errno.EBADF, "the descriptor of the runner status file was closed in this process")
        until = time.monotonic() + seconds
        with self._taking:
            while True:
                try:
                    fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise
                time.sleep(0.001)
            try:
                yield
            finally:
                fcntl.lockf(self.fd, fcntl.LOCK_UN)


def anonymous_file(folder: Path) -> int:
    """Create a file without a name for a `StatusFile`, and return its descriptor. `folder`: where to create it if the
    system has no `memfd_create`. Raises OSError.
    """
    try:
        fd = os.memfd_create(_NAME)
    except (AttributeError, OSError):  # `memfd_create` is missing in this build of Python, or refused by the system
        with tempfile.TemporaryFile(dir=folder) as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, _HEAD + (_ROWS + 1) * _ROW_SIZE)
    return fd


def _row_of(runner: str) -> int:
    """Return the number of a runner's row, which its id has; for an id of another form the last row, which is always
    empty.
    """
    number = "".join(runner.split(".")[2:3])
    return int(number) if number.isdecimal() and len(number) < len(str(_ROWS)) else _ROWS


def _parsed(line: str) -> RunnerStatus:
    head, _, rest = line.partition("\n")
    state, runner, token, begun, limit = head.split(" ")
    if state in ("failed", "signalled"):
        return RunnerStatus(state, runner, begun=float(begun), why=rest)
    job_id, _, task = rest.partition("\n")
    return RunnerStatus(state, runner, token, float(begun), float(limit), job_id=job_id, task=task)


def _pids() -> str:
    """Return the id of this process's pid namespace, "0" if unknown. Containers that share /dev/shm may use the same
    pids for different processes.
    """
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
