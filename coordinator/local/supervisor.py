"""Starts the processes of one machine, restarts those that die, and ends them in order.

Each child leads its own session and process group, and writes to its own log. When a child dies, the supervisor kills
the rest of its group before it starts the child again. A child ends with its supervisor, however the supervisor ends
(`child.leashed`). There is no background thread: `step` checks the children once, and `run` calls it until `stop` is
set. Use all of it from the main thread.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from coordinator.local.child import leashed

BACKOFF_FIRST, BACKOFF_MOST = 1.0, 30.0  # seconds between a death and the next start, doubling
STEADY = 60.0  # a child that lived this long begins with the first backoff again
STOP_TOTAL = 10.0  # seconds for all children together
STOP_RESERVE = 0.5  # the part of STOP_TOTAL that each group still to be stopped keeps
POLL = 0.02
REPORT_EVERY = 1.0  # seconds between two reports of a wait that goes on

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildSpec:
    """A program to run. `env`: additions to ours. `stop_timeout`: seconds from `stop_signal` to SIGKILL.

    The supervisor stops the children in reverse order, one after the other. A child with `together` stops at the same
    time as the one before it in the list: these form a group.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout: float = 5.0
    together: bool = False


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
            os.kill(self._process.pid, self.spec.stop_signal)

    def bury(self) -> int:
        """Kill the rest of its process group, reap it, and return its exit status (negative: the signal)."""
        if not self._process:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        return status


class Supervisor:
    """`with Supervisor(specs, directory) as supervisor: supervisor.run(stop)`; logs are `directory/<name>.log`.

    `waits` is called with the names of the children that still run during a stop: at once, after each change, and each
    second.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        directory: str | Path,
        clock: Callable[[], float] = time.monotonic,
        waits: Callable[[list[str]], object] = lambda names: None,
    ) -> None:
        self.directory = Path(directory)
        self._waits = waits
        self.children = [Child(spec, self.directory / f"{spec.name}.log", clock) for spec in specs]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for child in self.children:
                child.start()
        except BaseException:
            self.stop()
            raise

    def step(self) -> None:
        for child in self.children:
            child.step()

    def run(self, stop: threading.Event, interval: float = 0.2) -> None:
        while not stop.wait(interval):
            self.step()

    def stop(self) -> None:
        """End all in reverse order. After STOP_TOTAL seconds, or at an interrupt, kill those that are left."""
        end = time.monotonic() + STOP_TOTAL
        groups = self._groups()
        try:
            while groups:
                group = groups.pop()
                patience = max(child.spec.stop_timeout for child in group)
                deadline = min(time.monotonic() + patience, end - STOP_RESERVE * len(groups))
                for child in reversed(group):
                    child.ask_to_stop()
                self._await(group, deadline)
                for child in group:
                    child.bury()
        finally:
            for child in self.children:
                child.bury()

    def _await(self, group: list[Child], deadline: float) -> None:
        reported, until = list[str](), 0.0
        while time.monotonic() < deadline and (alive := [child.spec.name for child in group if not child.dead()]):
            if alive != reported or time.monotonic() >= until:
                reported, until = alive, time.monotonic() + REPORT_EVERY
                self._waits(alive)
            time.sleep(POLL)

    def _groups(self) -> list[list[Child]]:
        """The children in order, those that stop together in one list."""
        groups: list[list[Child]] = []
        for child in self.children:
            if child.spec.together and groups:
                groups[-1].append(child)
            else:
                groups.append([child])
        return groups
