"""A companion: a process beside another. A worker's companion is its clock, and the clock's companion its errands.

The parent starts its companion and writes to its standard input, one JSON object a line; the first line names the
parent. The companion writes a byte to a pipe as a sign of life. The parent restarts a companion that ended, and kills
one that was silent for too long. The companion ends once its parent is gone, even if a fork of the parent still holds
the pipes open.
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

from coordinator.fleet import processes
from coordinator.fleet.nodes import About
from coordinator.store.values import Json

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0  # seconds between two starts of a companion that ends at once
_LAST = 5.0  # seconds that `stop` gives it before the kill


class Companion:
    """The parent's side of a companion: starts it, writes to it, and restarts it when it ends or hangs.

    `name`: for log lines; `command`: the arguments of `python`, to which the pipe's descriptor is added; `note`: a file
    with the process's identity, so that the next parent can kill a companion that was left behind. `patience`: seconds
    of silence until the kill; `first`: seconds until the first sign of life. Time in which the parent itself was
    stopped does not count. `handed`: descriptors that the companion has, too.
    """

    def __init__(
        self, name: str, command: Sequence[str], note: Path, patience: float, first: float, handed: Sequence[int] = ()
    ) -> None:
        self.signed = False  # since its start
        self._name = name
        self._command = command
        self._note = note
        self._patience, self._first, self._handed = patience, first, handed
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = -1
        self._first_line = b""  # what is left of it
        self._looking = threading.Lock()
        self._looked = self._silence = self._rests = 0.0
        self._starts, self._next_start = 0, 0.0
        os.register_at_fork(after_in_child=partial(_close_pipes_in_fork, weakref.ref(self)))

    def look(self, charge: Callable[[], Mapping[str, Json]]) -> None:
        """Start the companion if it does not run, and kill it if it hangs; a later look starts the next one.

        Never raises. `charge` returns the first line for its standard input.
        """
        with self._looking:
            try:
                self._look(charge)
            except Exception:
                logger.exception("cannot look after %s", self._name)

    def _look(self, charge: Callable[[], Mapping[str, Json]]) -> None:
        if self._process is not None and (status := self._process.poll()) is not None:
            if not self._rests:
                logger.error("%s ended (exit %s); starting again", self._name, status)
            self._forget()
        self._write_on()
        if self._process is None:
            self._start(charge)
        elif self._is_silent():
            logger.error("%s was silent for %g s: killed", self._name, self._silence)
            self._process.kill()
            self._silence = 0.0
        elif self._overstays():
            self._process.kill()

    def rest(self) -> None:
        """Have the companion end, since it is not needed now; a later look starts it again. Never waits."""
        with self._looking:
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
        """True if it was to end ten seconds ago."""
        return bool(self._rests) and time.monotonic() - self._rests > 2 * _LAST

    def send(self, line: About) -> bool:
        """Write a line to the companion's input without waiting; False if that is not possible now, or before the whole
        first line. Never raises.

        A pipe takes a line of up to PIPE_BUF bytes as a whole or not at all; a longer one might be cut.
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
        """Close the companion's standard input, which ends it; kill it if that takes too long."""
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

    def _start(self, charge: Callable[[], Mapping[str, Json]]) -> None:
        if time.monotonic() < self._next_start:
            return
        self._starts += 1
        self._next_start = time.monotonic() + min(_LONGEST_PAUSE, 0.5 * 2 ** min(self._starts, 10))
        first = json.dumps(charge()).encode() + b"\n"
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
                start_new_session=True,
            )
        finally:
            os.close(writer)
        with suppress(OSError):
            self._note.write_text(f"{process.pid}.{processes.birth(process.pid)}")
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._first_line = first
        self._write_on()
        self.signed, self._silence, self._looked = False, 0.0, time.monotonic()

    def _write_on(self) -> None:
        """Write as much of the first line as the pipe takes: of a large app it is longer than that."""
        with suppress(OSError):
            while self._first_line and self._process is not None and self._process.stdin is not None:
                self._first_line = self._first_line[os.write(self._process.stdin.fileno(), self._first_line) :]

    def _is_silent(self) -> bool:
        """True if no sign of life came for too long. A long gap between two looks counts as a quarter of the patience
        at most: the parent may have been stopped itself.
        """
        elapsed, self._looked = time.monotonic() - self._looked, time.monotonic()
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
    """Close a forked process's copies of the pipes: only the parent uses them."""
    if (companion := reference()) is not None:
        companion._close_pipes()


class LineReader(threading.Thread):
    """The companion's side: passes each line of the parent to `receive`. `parent`: the identity of that process."""

    def __init__(self, source: TextIO, parent: str, receive: Callable[[About], object]) -> None:
        super().__init__(name="line-reader", daemon=True)
        self._source = source
        self._parent = parent
        self._receive = receive
        self._closed = threading.Event()

    def ended(self, seconds: float) -> bool:
        """Wait until the parent is gone, `seconds` at most, and return whether it is."""
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
        """Pass the line on if it is a JSON object; log any other, which does not mean that the parent is gone."""
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            self._receive(fields)
        else:
            logger.error("the parent sent a line that is no JSON object: %.100r", line)


def sign_of_life(pipe: int) -> None:
    """Write a byte to the parent, which shows that this companion works."""
    with suppress(OSError):  # the parent is gone, which `LineReader` sees, or does not read
        os.write(pipe, b".")


def outlive_signals() -> None:
    """Do nothing at signals that a whole process group gets: they are for the parent, which needs its companion until
    it has ended. SIG_IGN would not do, since the companion's own children would inherit it.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
