"""The clock's hand on the errands: the process that does for a node all that may wait, hang or fail.

The clock spawns it with the place of the app and tells it, through its standard input, which doorbells to ring, and
when to look what is to be done: one JSON object a line. It says that it gets on by writing bytes to a pipe. Where it
keeps silent for too long, the clock kills it and starts another, which does again what was not done. A killed clock's
errands end by themselves; else the next clock kills them: the board has their name.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from coordinator.fleet import processes
from coordinator.store.values import Json

logger = logging.getLogger(__name__)

PATIENCE = 20.0  # seconds without a sign of life
FIRST_PATIENCE = 180.0  # seconds until the first sign: the app is imported
_LONGEST_PAUSE = 30.0  # between two starts of one that ends at once
_LAST = 5.0  # seconds to end in good order


class ErrandsProcess:
    """`charge`: what it is told as its first line. `board`: the folder in which its name is kept."""

    def __init__(self, app: str, charge: Mapping[str, Json], board: Path, patience: float = PATIENCE) -> None:
        self._app = app
        self._charge = charge
        self._name = board / "errands"
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._ear = -1
        self._heard = 0.0  # monotonic
        self._greeted = False
        self._starts, self._next_start = 0, 0.0

    def look(self) -> None:
        """Start it where it is not there, kill it where it is silent. Never raises."""
        try:
            if self._process is None:
                self._start()
            elif (status := self._process.poll()) is not None:
                logger.error("the errands ended (exit %s); starting them again", status)
                self._forget()
            elif self._is_silent():
                logger.error("the errands were silent for %g s: killed, and started again", self._patience)
                self._process.kill()
                self._process.wait()
                self._forget()
        except Exception:
            logger.exception("cannot look after the errands")

    def ring(self, node: str, bell: str) -> None:
        """Have a doorbell published. Never waits, never raises: one that is lost is rung again."""
        self._say({"ring": [node, bell]})

    def tell(self) -> None:
        """There is something to do. Never waits, never raises: the next beat says so again."""
        self._say({"look": 1})

    def _say(self, line: Mapping[str, Json]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                os.write(self._process.stdin.fileno(), json.dumps(line).encode() + b"\n")

    def stop(self) -> None:
        """The end of its standard input tells it to end."""
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

    def _start(self) -> None:
        if time.monotonic() < self._next_start:
            return
        self._starts += 1
        self._next_start = time.monotonic() + min(_LONGEST_PAUSE, 0.5 * 2 ** min(self._starts, 10))
        with suppress(OSError):
            processes.kill(self._name.read_text())
        self._ear, voice = os.pipe()
        os.set_blocking(self._ear, False)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "coordinator.worker", self._app, str(voice)],
                stdin=subprocess.PIPE,
                pass_fds=[voice],
                start_new_session=True,
            )
        finally:
            os.close(voice)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._charge).encode() + b"\n")
        self._process.stdin.flush()
        os.set_blocking(self._process.stdin.fileno(), False)
        self._heard, self._greeted = time.monotonic(), False
        with suppress(OSError):
            self._name.write_text(f"{self._process.pid}.{processes.birth(self._process.pid)}")

    def _is_silent(self) -> bool:
        with suppress(BlockingIOError):
            if os.read(self._ear, 4096):
                self._heard, self._greeted, self._starts = time.monotonic(), True, 0
        return time.monotonic() - self._heard > (self._patience if self._greeted else FIRST_PATIENCE)

    def _forget(self) -> None:
        os.close(self._ear)
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None
