"""A child of the supervisor: a program, its log, and its restarts."""

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.local.leash import leashed

BACKOFF_FIRST, BACKOFF_MOST = 1.0, 30.0  # seconds between a death and the next start, doubling
STEADY = 60.0  # a child that lived this long begins with the first backoff again

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildSpec:
    """A program to run. `env`: additions to ours. `stop_timeout`: seconds from SIGTERM to SIGKILL."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_timeout: float = 5.0


class Child:
    """A child through all its restarts."""

    def __init__(self, spec: ChildSpec, log_file: Path, clock: Callable[[], float]) -> None:
        self.spec = spec
        self.log_file = log_file
        self.starts = 0
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._born = 0.0
        self._due = 0.0
        self._backoff = BACKOFF_FIRST

    @property
    def pid(self) -> int:
        """The child's pid; 0 while it is down."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                leashed(self.spec.argv),
                env={**os.environ, **self.spec.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._born = self._clock()
        self.starts += 1

    def step(self) -> None:
        """Clean up after a child that died, and start it again after its backoff."""
        if self._process:
            if not self.dead():
                return
            status = self.bury()
            now = self._clock()
            if now - self._born >= STEADY:
                self._backoff = BACKOFF_FIRST
            log.warning(
                "%s ended (%s) and starts again in %g s; see %s", self.spec.name, status, self._backoff, self.log_file
            )
            self._due = now + self._backoff
            self._backoff = min(2 * self._backoff, BACKOFF_MOST)
        elif self._clock() >= self._due:
            self.start()

    def dead(self) -> bool:
        """True if the child died. It is not reaped, so that until `bury` no other process can get its pid."""
        if not self._process:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_stop(self) -> None:
        if self._process:
            os.kill(self._process.pid, signal.SIGTERM)

    def bury(self) -> int:
        """Kill the rest of its process group, reap it, and return its exit status (negative: the signal)."""
        if not self._process:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        return status
