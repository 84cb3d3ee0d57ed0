"""A companion: a process that its parent process starts and watches. The worker's companion is the supervisor, and the
supervisor's companion is maintenance.

The parent writes to the companion's standard input, one JSON object a line; the first line has the identity of the
parent. The companion writes single bytes to a pipe as signs of life. The parent restarts a companion that ended, and
kills a companion that has sent no sign of life for too long. The companion ends when its parent is gone, even if a fork
of the parent still holds the pipes open.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from select import PIPE_BUF
from typing import TextIO

from coordinator.core.fleet import processes
from coordinator.core.fleet.nodes import About
from coordinator.core.store.values import Json

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0  # seconds, at most, between two starts of a companion that ends again and again
_LAST = 5.0  # seconds that `stop` waits for the companion to end, before it kills the process


class Companion:
    """The parent's side of a companion: starts the process, writes to it, and restarts it when it ends or hangs.

    `name`: for log lines; `command`: the arguments of `python`, to which the descriptor of the pipe is added; `note`: a
    file for the identity of the companion's process, so that the next parent can kill a companion that was left behind.
    `patience`: after how many seconds without a sign of life the companion is killed; `first`: the same, until its
    first sign of life. Time in which the parent itself was stopped hardly counts. `handed`: file descriptors that the
    companion inherits.
    """

    def __init__(
        self, name: str, command: Sequence[str], note: Path, patience: float, first: float, handed: Sequence[int] = ()
    ) -> None:
        self.signed = False  # True: the companion has sent a sign of life since it was started
        self._name = name
        self._command = command
        self._note = note
        self._patience, self._first, self._handed = patience, first, handed
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = -1
        self._first_line = b""  # the part of the first line that is not written yet
        self._lock = threading.Lock()
        self._last_look = self._silence = self._rests = 0.0
        self._starts, self._next_start = 0, 0.0
        os.register_at_fork(after_in_child=partial(_close_pipes_in_fork, weakref.ref(self)))

    def look(self, first_line: Callable[[], Mapping[str, Json]]) -> None:
        """Check the companion: start it if it does not run, and kill it if it hangs; a later call starts it again. Call
        this regularly; it never raises. `first_line`: returns the fields of the first line for the companion's input.
        """
        with self._lock:
            try:
                self._look(first_line)
            except Exception:
                logger.exception("cannot check or start %s", self._name)

    def _look(self, first_line: Callable[[], Mapping[str, Json]]) -> None:
        if self._process is not None and (status := self._process.poll()) is not None:
            if not self._rests:
                logger.error("%s ended (exit %s); starting again", self._name, status)
            self._forget()
        self._write_on()
        if self._process is None:
            self._start(first_line)
        elif self._is_silent():
            logger.error("%s was silent for %g s (no sign of life), and is killed", self._name, self._silence)
            self._process.kill()
            self._silence = 0.0
        elif self._overstays():
            self._process.kill()

    def rest(self) -> None:
        """End the companion, since it has no work: close its standard input, and kill it if it has not ended after ten
        seconds. Call this regularly; it never waits. A later `look` starts the companion again.
        """
        with self._lock:
            if self._process is None:
                return
            if self._process.poll() is not None:
                self._forget()
            elif not self._rests:
                self._rests = time.monotonic()
                self._close_input()
            elif self._overstays():
                self._process.kill()

    def _overstays(self) -> bool:
        """True if the companion still runs ten seconds after `rest` has closed its input."""
        return bool(self._rests) and time.monotonic() - self._rests > 2 * _LAST

    def send(self, line: About) -> bool:
        """Write a line to the companion's standard input, without waiting. Returns False, and writes nothing, if the
        companion does not run, the pipe is full, the first line is not yet written, or the line has more than PIPE_BUF
        bytes: the system might write only a part of a longer one. Never raises.
        """
        encoded = json.dumps(line).encode() + b"\n"
        if self._process is None or self._process.stdin is None or self._first_line or len(encoded) > PIPE_BUF:
            return False
        try:
            os.write(self._process.stdin.fileno(), encoded)
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the companion: close its standard input, wait up to five seconds until it has ended, then kill it."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_LAST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def _start(self, first_line: Callable[[], Mapping[str, Json]]) -> None:
        if time.monotonic() < self._next_start:
            return
        self._starts += 1
        self._next_start = time.monotonic() + min(_LONGEST_PAUSE, 0.5 * 2 ** min(self._starts, 10))
        first = json.dumps(first_line()).encode() + b"\n"
        with suppress(OSError):
            processes.kill(self._note.read_text())
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)  # the companion never waits for a parent that does not read
        try:
            process = self._process = subprocess.Popen(
                [sys.executable, *self._command, str(writer)],
                stdin=subprocess.PIPE,
                bufsize=0,  # a buffer has a lock, which a thread may hold while another thread forks
                pass_fds=[writer, *self._handed],
                start_new_session=True,  # Ctrl-C reaches only the worker, which ends its companions in order
            )
        finally:
            os.close(writer)
        with suppress(OSError):
            self._note.write_text(f"{process.pid}.{processes.birth(process.pid)}")
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._first_line = first
        self._write_on()
        self.signed, self._silence, self._last_look = False, 0.0, time.monotonic()

    def _write_on(self) -> None:
        """Write as much of the rest of the first line as the pipe takes now: the first line of a large app is longer
        than the 64 KiB of a pipe.
        """
        with suppress(OSError):
            while self._first_line and self._process is not None and self._process.stdin is not None:
                self._first_line = self._first_line[os.write(self._process.stdin.fileno(), self._first_line) :]

    def _is_silent(self) -> bool:
        """True if the companion has sent no sign of life for too long. The time between two calls of `look` counts as a
        quarter of `patience` at most, since in a longer gap the parent itself was stopped.
        """
        elapsed, self._last_look = time.monotonic() - self._last_look, time.monotonic()
        with suppress(BlockingIOError):
            if os.read(self._reader, 65536):
                self.signed, self._silence, self._starts = True, 0.0, 0
                return False
        self._silence += min(elapsed, self._patience / 4)
        return self._silence > (self._patience if self.signed else self._first)

    def _forget(self) -> None:
        self._close_pipes()
        self._first_line = b""
        self._process = None
        self._rests = 0.0

    def _close_pipes(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.stdin = None


def _close_pipes_in_fork(reference: weakref.ref[Companion]) -> None:
    """Close the copies of the companion's pipes in a forked process, since only the parent uses the pipes."""
    if (companion := reference()) is not None:
        companion._close_pipes()


class LineReader(threading.Thread):
    """The companion's side: a thread that reads the lines of the parent from `source`, and calls `receive` with the
    fields of each. `parent`: the identity (see `processes.identity`) of the parent process.
    """

    def __init__(self, source: TextIO, parent: str, receive: Callable[[About], object]) -> None:
        super().__init__(name="line-reader", daemon=True)
        self._source = source
        self._parent = parent
        self._receive = receive
        self._closed = threading.Event()

    def ended(self, seconds: float) -> bool:
        """Wait until the parent has closed the input, `seconds` at most. Returns True if the parent is gone."""
        return self._closed.wait(seconds) or processes.condition(self._parent) == "gone"

    def run(self) -> None:
        try:
            for line in self._source:
                self._parse(line)
        except (OSError, ValueError):
            logger.exception("cannot read the parent's lines")
        finally:
            self._closed.set()

    def _parse(self, line: str) -> None:
        """Call `receive` with the fields of a line; log a line that is no JSON object, and go on."""
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            self._receive(fields)
        else:
            logger.error("the parent sent a line that is no JSON object: %.100r", line)


def sign_of_life(pipe: int) -> None:
    """Write a byte into the pipe to the parent, as a sign of life of this companion. `pipe`: its file descriptor."""
    with suppress(OSError):  # the pipe is full, or the parent is gone, which `LineReader` notices
        os.write(pipe, b".")


def outlive_signals() -> None:
    """Make this companion ignore SIGINT, SIGTERM, SIGHUP and SIGQUIT: a whole process group may get them, but they are
    for the parent, which needs its companion until the parent itself has ended. Handlers that do nothing are used, and
    not SIG_IGN, which the companion's own child processes would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
