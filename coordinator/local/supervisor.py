"""Starts the processes of one machine, restarts those that die, and ends them together.

Each child leads its own session and process group, and writes to its own log. When a child dies, the supervisor kills
the rest of its group before it starts the child again. A child ends with its supervisor, however the supervisor ends
(`leash.leashed`). There is no background thread: `step` checks the children once. Use all of it from the main thread.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from coordinator.local.child import Child, ChildSpec

POLL = 0.02
REPORT_EVERY = 1.0  # seconds between two reports of a wait that goes on

log = logging.getLogger(__name__)


class Supervisor:
    """`with Supervisor(specs, directory) as supervisor: supervisor.step()`; logs are `directory/<name>.log`.

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

    def stop(self) -> None:
        """End all at the same time. After the longest of their times, or at an interrupt, kill those that are left."""
        try:
            for child in self.children:
                child.ask_to_stop()
            self._await(time.monotonic() + max(child.spec.stop_timeout for child in self.children))
        finally:
            for child in self.children:
                child.bury()

    def _await(self, deadline: float) -> None:
        reported, until = list[str](), 0.0
        while time.monotonic() < deadline and (
            alive := [child.spec.name for child in self.children if not child.dead()]
        ):
            if alive != reported or time.monotonic() >= until:
                reported, until = alive, time.monotonic() + REPORT_EVERY
                self._waits(alive)
            time.sleep(POLL)
