"""Starts the processes of one machine, restarts those that die, and ends them in order.

Each child leads its own session and process group, and writes to its own log. When a child dies, the supervisor kills
the rest of its group before it starts the child again. A child ends with its supervisor, however the supervisor ends
(`leash.leashed`). There is no background thread: `step` checks the children once, and `run` calls it until `stop` is
set. Use all of it from the main thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from coordinator.local.child import Child, ChildSpec

STOP_TOTAL = 10.0  # seconds for all children together
STOP_RESERVE = 0.5  # the part of STOP_TOTAL that each group still to be stopped keeps
POLL = 0.02
REPORT_EVERY = 1.0  # seconds between two reports of a wait that goes on

log = logging.getLogger(__name__)


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
