"""The board: memory that a worker shares with its pool and its clock, in which runners write their state.

A runner has a place there from before its first claim until after the reply to its last one. It notes when a task's
body begins and ends; that is a write into memory, without a round trip. So the clock never judges by silence:

    over, or nothing of it     the runner has ended
    a token of a later number  the runner has gone on to another claim
    not begun                  the body of this claim has not begun: its time limit does not run, no attempt was made

The worker also writes there whether it sends task events, whether it stops, and when it has looked at its signals; the
clock, when Redis has answered it.

The memory is a file without a name. The pool inherits it mapped, and the worker hands it to each clock that it starts.
So nobody can remove it under them, and a process that may open or write no file any more can still write there. The
board's folder holds only what may get lost: measures, a sign of life, and which processes the warden has. Its name has
the worker's pid and birth, since a worker that SIGHUP restarts keeps its pid. The next worker removes the folder of a
killed one.
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

from coordinator.fleet import processes
from coordinator.fleet.measures import Measures

_MEMORY = Path("/dev/shm")
_NAME = "celery-coordinator-"
_NUMBER = 8  # hex digits at the end of a token that count the runner's claims
# Where in the head: 1 = it sends task events, 1 = it stops, a number that grows with each of its looks; how many places
# were ever taken (an int); time.monotonic() of Redis' last answer to the clock (a double).
_EVENTS, _STOPS, _LOOKS, _USED, _HEARD, _HEAD = 0, 1, 2, 4, 8, 16
_ALIVE = "worker"  # a file that changes with each look
_ROOM = 1000  # size of a place in bytes
_PLACES = 10_000  # as many runners may be at work at once; memory is used once a place is taken
_KEPT = 60.0  # seconds for which the notice of a failed runner is kept
_READS = 5  # tries at a notice that is being written; its process may be stopped in the middle of a write
_PATIENCE = 1.0  # seconds to wait for others that take a place


class Notice(NamedTuple):
    """The notice of a runner.

    `state`: claiming (no body began yet), begun or ended; over: the runner has ended; failed: an exception (`why`)
    ended the runner; signalled: a signal to its process did; unknown: it cannot be read. `begun`: time.monotonic() when
    the body of this claim began, or the runner failed. `limit`: the body's time limit in seconds, 0 = none. `job_id`,
    `task`: the job and task of the body.
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


class Pen:
    """Writes the notices of one runner after another into a place of the board, without a system call."""

    def __init__(self, board: Board, place: int, process: str) -> None:
        self._board, self._place, self._process = board, place, process
        self.runner = ""
        self._claim, self._work = _claim("", 0.0), ""

    def start(self, name: str) -> str:
        """Begin the notice of the runner `name`, which has not claimed yet, and return its id."""
        self.runner = f"{self._process}.{self._place}.{name}"
        self._claim, self._work = _claim("", 0.0), ""
        self._write("claiming")
        return self.runner

    def begin(self, token: str, limit: float | None, job_id: str = "", task: str = "") -> None:
        self._claim, self._work = _claim(token, limit or 0.0), f"{job_id}\n{task}"
        self._write("begun")

    def end(self) -> None:
        self._write("ended")

    def fail(self, why: str, signalled: bool = False) -> None:
        """Write why the runner failed. The notice stays for the clock to read, and no other runner writes there."""
        self._claim = _claim("", 0.0)
        self._work = why.encode(errors="replace")[: _ROOM - 200].decode(errors="replace").replace("\n", " ")
        self._write("signalled" if signalled else "failed")

    def close(self) -> None:
        """Write that the runner has ended. The next one of its process may have the pen."""
        self._write("over")
        self._board.give_back(self, self._process)

    def _write(self, state: str) -> None:
        self._board.write(self._place, f"{state} {self.runner} {self._claim}\n{self._work}")


def _claim(token: str, limit: float) -> str:
    return f"{token} {time.monotonic():.6f} {limit:.3f}"


class Board:
    """The board of one worker. `memory`: the descriptor of its memory. `measures`: how long the jobs of this process
    wait and run.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder, self.memory = folder, memory
        self._file = os.fstat(memory)
        self.measures = Measures(folder)
        self._map = mmap.mmap(memory, _HEAD + (_PLACES + 1) * _ROOM)
        self._pens: dict[str, deque[Pen]] = {}  # by process: those that no runner has now
        self._taking = threading.Lock()

    @classmethod
    def open(cls) -> Board:
        """Create an empty board for the calling process, and remove those of dead workers. Raises OSError."""
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        name = f"{_NAME}{_pids()}-"
        for folder in memory.glob(f"{name}*"):
            if processes.condition(".".join(folder.name.removeprefix(name).split(".")[:2])) == "gone":
                shutil.rmtree(folder, ignore_errors=True)
        return cls(Path(tempfile.mkdtemp("", f"{name}{processes.identity()}.", memory)), nameless(memory))

    @property
    def events(self) -> bool:
        """True while the worker sends task events."""
        return self._map[_EVENTS] == 1

    @events.setter
    def events(self, on: bool) -> None:
        self._map[_EVENTS] = int(on)

    @property
    def stops(self) -> bool:
        """True once the worker stops."""
        return self._map[_STOPS] == 1

    @stops.setter
    def stops(self, on: bool) -> None:
        self._map[_STOPS] = int(on)

    @property
    def looks(self) -> int:
        """Changes with each look of the worker's main process at its own state."""
        return self._map[_LOOKS]

    def look(self, stops: bool) -> None:
        """The main process has looked: whether it stops is up to date for all signals that came before. A file shows
        supervisors that it lives; somebody may have removed the folder meanwhile.
        """
        self.stops = self.stops or stops
        self._map[_LOOKS] = (self._map[_LOOKS] + 1) % 256
        with suppress(OSError):
            self.folder.mkdir(0o700, exist_ok=True)
            file = os.open(self.folder / _ALIVE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, self._map[_LOOKS : _LOOKS + 1])  # in place: a full memory has room for that
            finally:
                os.close(file)

    @property
    def heard(self) -> float:
        """time.monotonic() when Redis last answered the clock."""
        (heard,) = struct.unpack_from("d", self._map, _HEARD)
        return float(heard)

    @heard.setter
    def heard(self, at: float) -> None:
        struct.pack_into("d", self._map, _HEARD, at)

    def pen(self, process: str = "") -> Pen:
        """A pen that no runner of this process has, or of another one. Raises OSError if there is no room."""
        process = process or processes.identity()
        try:
            return self._pens.setdefault(process, deque()).pop()
        except IndexError:
            return Pen(self, self._take(process), process)

    def give_back(self, pen: Pen, process: str) -> None:
        self._pens[process].append(pen)

    def read(self, runner: str) -> Notice:
        """The notice of a runner. It is over where its place has nothing of it: it wrote there before it claimed."""
        notice = self._at(_place_in(runner))
        return notice if notice.state == "unknown" or notice.runner == runner else Notice("over")

    def notices(self) -> list[tuple[str, Notice]]:
        """The notice of each runner."""
        found = (self._at(place) for place in range(self._used))
        return [(notice.runner, notice) for notice in found if notice.runner]

    def at_work(self) -> list[tuple[int, Notice]]:
        """The notices of all bodies that run now, each with the pid of its process."""
        begun = ((runner, notice) for runner, notice in self.notices() if notice.state == "begun")
        return [(int(runner.partition(".")[0]), notice) for runner, notice in begun]

    def remove(self, runner: str) -> None:
        self._clear([_place_in(runner)])

    def clean(self) -> None:
        """Free the places of dead processes, and old ones of failed runners."""
        old = time.monotonic() - _KEPT
        self._clear(
            [
                _place_in(runner)
                for runner, notice in self.notices()
                if (notice.begun < old and notice.state in ("failed", "signalled"))
                or (notice.state != "failed" and processes.condition(notice.process) == "gone")
            ]
        )

    def failure(self) -> str:
        """Why the last runner failed, '' if none did in the last minute."""
        failed = [(notice.begun, notice.why) for _, notice in self.notices() if notice.state == "failed"]
        return max(failed, default=(0.0, ""))[1]

    def close(self) -> None:
        """Remove the board."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._map.close()
        os.close(self.memory)

    def write(self, place: int, text: str) -> None:
        line = text.encode(errors="replace")[: _ROOM - 10].rstrip()
        start = _HEAD + place * _ROOM
        self._map[start : start + _ROOM] = b"%08x %s" % (zlib.crc32(line), line.ljust(_ROOM - 9))

    @property
    def _used(self) -> int:
        """How many places were ever taken."""
        (used,) = struct.unpack_from("i", self._map, _USED)
        return int(used)

    def _at(self, place: int) -> Notice:
        """What stands at a place, of whichever runner."""
        start = _HEAD + place * _ROOM
        for _ in range(_READS):
            text = self._map[start : start + _ROOM]
            if not text[0]:
                return Notice("over")
            line = text[9:].rstrip()
            if text[:8] == b"%08x" % zlib.crc32(line):  # else its runner is writing it
                return _parsed(line.decode(errors="replace"))
        return Notice("unknown")

    def _take(self, process: str) -> int:
        """Take a free place for a process. A memory that is full refuses that here, and then no write in it fails."""
        with self._alone(_PATIENCE):
            used = self._used
            free = (place for place in range(used) if not self._map[_HEAD + place * _ROOM])
            place = next(free, used)
            if place == _PLACES:
                raise OSError(errno.ENOSPC, f"{_PLACES} runners are at work in this worker, and no more can be")
            os.pwrite(self.memory, bytes(_ROOM), _HEAD + place * _ROOM)
            self.write(place, f"over {process}.{place}. {_claim('', 0.0)}")
            struct.pack_into("i", self._map, _USED, max(used, place + 1))
        return place

    def _clear(self, places: list[int]) -> None:
        """Free places whose runners have ended; a later look does where another process takes one just now."""
        if places:
            with suppress(BlockingIOError), self._alone(0.0):
                for place in places:
                    start = _HEAD + place * _ROOM
                    self._map[start : start + _ROOM] = bytes(_ROOM)

    @contextmanager
    def _alone(self, patience: float) -> Iterator[None]:
        """While no other process or thread takes or frees a place. Raises BlockingIOError; OSError where somebody has
        closed the descriptor, and may have another file there. A lock of the system ends with its process.
        """
        if not os.path.samestat(os.fstat(self.memory), self._file):
            raise OSError(errno.EBADF, "somebody closed the board's descriptor in this process")
        until = time.monotonic() + patience
        with self._taking:
            while True:
                try:
                    fcntl.lockf(self.memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise
                time.sleep(0.001)
            try:
                yield
            finally:
                fcntl.lockf(self.memory, fcntl.LOCK_UN)


def nameless(folder: Path) -> int:
    """The descriptor of memory for a board: of a file that has no name, and that nobody can remove. Raises OSError."""
    try:
        memory = os.memfd_create(_NAME)
    except (AttributeError, OSError):  # not every build of Python and not every system has it
        with tempfile.TemporaryFile(dir=folder) as file:
            memory = os.dup(file.fileno())
    os.truncate(memory, _HEAD + (_PLACES + 1) * _ROOM)
    return memory


def _place_in(runner: str) -> int:
    """The place of a runner, by its id; the last one, which is never taken, for an id of another board's form."""
    number = "".join(runner.split(".")[2:3])
    return int(number) if number.isdecimal() and len(number) < len(str(_PLACES)) else _PLACES


def _parsed(line: str) -> Notice:
    head, _, rest = line.partition("\n")
    state, runner, token, begun, limit = head.split(" ")
    if state in ("failed", "signalled"):
        return Notice(state, runner, begun=float(begun), why=rest)
    job_id, _, task = rest.partition("\n")
    return Notice(state, runner, token, float(begun), float(limit), job_id=job_id, task=task)


def _pids() -> str:
    """The id of the pid namespace: containers may share memory, yet use the same pids for different processes."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
