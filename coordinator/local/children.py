"""Starts a set of child processes, restarts those that die, and stops all of them together.

Each child leads its own session and process group, and writes to its own log. When a child dies, the rest of its
process group is killed before the child is started again. If this process dies, the kernel kills the children
(`leash.leashed`). There is no background thread: call `step` regularly, from the main thread.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from coordinator.local.child import Child, ChildSpec

POLL = 0.02  # seconds between two looks whether the children have ended
REPORT_EVERY = 1.0  # seconds between two calls of `waits` during a stop

log = logging.getLogger(__name__)


class Children:
    """Runs the programs of `specs` as child processes: `with Children(specs, directory) as children: children.step()`.

    The log of each child is `directory/<name>.log`. `waits` is called during a stop with the names of the children that
    still run: at its beginning, after each change, and each second. `clock`: monotonic seconds, for tests.
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
        self.all = [Child(spec, self.directory / f"{spec.name}.log", clock) for spec in specs]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for child in self.all:
                child.start()
        except BaseException:
            self.stop()
            raise

    def step(self) -> None:
        for child in self.all:
            child.step()

    def stop(self) -> None:
        """Send SIGTERM to all children at once. After the longest `stop_timeout` among them, or at an interrupt, kill
        those that still run.
        """
        try:
            for child in self.all:
                child.ask_to_stop()
            self._await(time.monotonic() + max(child.spec.stop_timeout for child in self.all))
        finally:
            for child in self.all:
                child.bury()

    def _await(self, deadline: float) -> None:
        reported, until = list[str](), 0.0
        while time.monotonic() < deadline and (alive := [child.spec.name for child in self.all if not child.dead()]):
            if alive != reported or time.monotonic() >= until:
                reported, until = alive, time.monotonic() + REPORT_EVERY
                self._waits(alive)
            time.sleep(POLL)
