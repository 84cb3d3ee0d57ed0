"""A child process: starts a program with its output in a log file, and starts it again when it dies."""

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.local.leash import leashed

# Seconds to wait before a restart: at first, and at most; each wait is twice the last.
BACKOFF_FIRST, BACKOFF_MOST = 1.0, 30.0
STEADY = 60.0  # seconds; after a run of this length, the next wait is the first one again

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildSpec:
    """A program to run as a child process. `env`: variables added to the environment of this process. `stop_timeout`:
    seconds from SIGTERM to SIGKILL when the child is stopped.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_timeout: float = 5.0


class Child:
    """A child process that is started again each time it dies. `starts`: the number of starts so far."""

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
        """The pid of the child process; 0 while none runs."""
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
        """Check the child once: if it has died, kill the rest of its process group; if its backoff is over, start it
        again.
        """
        if self._process:
            if not self.dead():
                return
            status = self.bury()
            now = self._clock()
            if now - self._born >= STEADY:
                self._backoff = BACKOFF_FIRST
            log.warning(
                "%s ended with status %s and is restarted in %g s; see its log %s",
                self.spec.name,
                status,
                self._backoff,
                self.log_file,
            )
            self._due = now + self._backoff
            self._backoff = min(2 * self._backoff, BACKOFF_MOST)
        elif self._clock() >= self._due:
            self.start()

    def dead(self) -> bool:
        """True if the child process has died or was not started. The process is not reaped, so that no other process
        can get its pid before `bury` kills the process group.
        """
        if not self._process:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_stop(self) -> None:
        if self._process:
            os.kill(self._process.pid, signal.SIGTERM)

    def bury(self) -> int:
        """Kill the child and its process group, and reap it. Returns the exit status, negative for a signal; 0 if none
        runs.
        """
        if not self._process:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        return status
