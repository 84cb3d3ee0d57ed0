"""The board: shared memory in which the runners of a worker say what they do, and the node's clock reads it.

A runner has a file there from before its first claim until after the reply to its last one. It writes there when a body
begins and ends: a system call, no round trip. So the clock has evidence, and never judges by silence:

    no file                    the runner is over
    a later number of a token  the runner has gone on to another claim
    not begun                  the body of this claim has not begun: no time of it has passed, no attempt was made

The board belongs to one worker and its forks, and has its name. The next worker removes that of a killed one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.fleet import processes

_MEMORY = Path("/dev/shm")
_NAME = "celery-coordinator-"
_NUMBER = 8  # hex digits at the end of a token
_WHY = 500  # characters that are kept of an error


class Notice(NamedTuple):
    """The notice of a runner.

    `state`: claiming (no body began yet), begun or ended; over: the runner has no notice any more; failed: it has ended
    by an exception, `why`; unknown: there is no board. `begun`: time.monotonic() when the body of this claim began.
    `limit`: of that body, in seconds, 0 = none.
    """

    state: str
    token: str = ""
    begun: float = 0.0
    limit: float = 0.0
    why: str = ""

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
    """A runner writes its notice with it: one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._line = ""

    def begin(self, token: str, limit: float | None) -> None:
        self._line = f"{token} {time.monotonic():017.6f} {limit or 0:.3f}"
        self._write("begun")

    def end(self) -> None:
        self._write("ended")

    def close(self) -> None:
        os.close(self._file)
        with suppress(FileNotFoundError):
            self._path.unlink()

    def fail(self, why: str) -> None:
        """The notice stays, for the clock."""
        self._line = why[:_WHY].replace("\n", " ")
        try:
            self._write("failed")
        except OSError:
            self.close()
        else:
            os.close(self._file)

    def _write(self, what: str) -> None:
        os.pwrite(self._file, f"{what} {self._line}".ljust(96).encode(errors="replace") + b"\n", 0)


class Board:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls) -> Board:
        """The board of the calling process, empty."""
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        for left in memory.glob(f"{_NAME}*"):
            if processes.condition(left.name.removeprefix(_NAME)) == "gone":
                shutil.rmtree(left, ignore_errors=True)
        folder = memory / f"{_NAME}{processes.identity()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return cls(folder)

    def pen(self, runner: str) -> Pen:
        return Pen(self.folder / runner)

    def read(self, runner: str) -> Notice:
        try:
            text = (self.folder / runner).read_text().strip()
        except FileNotFoundError:
            return Notice("over" if self.folder.exists() else "unknown")
        state, _, rest = text.partition(" ")
        if state == "failed":
            return Notice(state, why=rest)
        found = rest.split()
        return Notice(state, found[0], float(found[1]), float(found[2])) if len(found) == 3 else Notice("claiming")

    def remove(self, runner: str) -> None:
        (self.folder / runner).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove the notices of processes that are gone."""
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if path.name.count(".") == 2 and processes.condition(path.name.rpartition(".")[0]) == "gone":
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """The worker is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
