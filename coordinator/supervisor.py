"""Keeps the processes of one machine running: starts them, restarts what dies, ends them in order.

Each child leads a session of its own, writes to a log of its own, and is the group that is killed whole: when a child
dies, what it leaves behind is killed before it is started again. A child ends with its supervisor, however that ends
(`leash`). Nothing here waits in the background: `step` looks once, and `run` calls it until told to stop. All of it
belongs in the main thread.
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

from coordinator.leash import leashed

BACKOFF_FIRST, BACKOFF_MOST = 1.0, 30.0  # seconds between a death and the next start, doubling
STEADY = 60.0  # a child that lived this long begins with the first backoff again
STOP_TOTAL = 10.0  # for all children together
STOP_RESERVE = 0.5  # of that, for each child or company still to be stopped
POLL = 0.02

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildSpec:
    """What to run. `env` is laid over ours; `stop_timeout` in seconds, then SIGKILL.

    Children are stopped in reverse order, one after the other; a `together` child at the same time as the one before it
    in the list.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout: float = 5.0
    together: bool = False


class Child:
    """One child through all its lives."""

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
        """0 while it is down."""
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
        """Bury it if it died, start it again when that is due."""
        if self._process:
            if not self.dead():
                return
            status = self.bury()
            now = self._clock()
            if now - self._born >= STEADY:
                self._backoff = BACKOFF_FIRST
            log.warning("%s ended (%s): again in %g s; see %s", self.spec.name, status, self._backoff, self.log_file)
            self._due = now + self._backoff
            self._backoff = min(2 * self._backoff, BACKOFF_MOST)
        elif self._clock() >= self._due:
            self.start()

    def dead(self) -> bool:
        """Looks without reaping: until `bury`, its pid, which names the group too, cannot become somebody else's."""
        if not self._process:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_stop(self) -> None:
        if self._process:
            os.kill(self._process.pid, self.spec.stop_signal)

    def bury(self) -> int:
        """Kill what lives of its group, reap it, and give its exit status (negative: the signal)."""
        if not self._process:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        return status


class Supervisor:
    """`with Supervisor(specs, directory) as supervisor: supervisor.run(stop)`; logs are `directory/<name>.log`."""

    def __init__(
        self, specs: Sequence[ChildSpec], directory: str | Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.directory = Path(directory)
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
        """End all in reverse order within STOP_TOTAL seconds; what is left then, or at an interrupt, is killed."""
        end = time.monotonic() + STOP_TOTAL
        companies = self._companies()
        try:
            while companies:
                company = companies.pop()
                patience = max(child.spec.stop_timeout for child in company)
                deadline = min(time.monotonic() + patience, end - STOP_RESERVE * len(companies))
                for child in reversed(company):
                    child.ask_to_stop()
                while time.monotonic() < deadline and not all(child.dead() for child in company):
                    time.sleep(POLL)
                for child in company:
                    child.bury()
        finally:
            for child in self.children:
                child.bury()

    def _companies(self) -> list[list[Child]]:
        """The children in order, those that stop together in one list."""
        companies: list[list[Child]] = []
        for child in self.children:
            if child.spec.together and companies:
                companies[-1].append(child)
            else:
                companies.append([child])
        return companies
