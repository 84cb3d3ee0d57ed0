"""The duties of the maintenance process: work that may block or fail, and needs the app.

    results   sends results and links that no runner has sent
    parked    checks parked jobs: when all their sub-results have ended, it ends the attempt
    alerts    raises alerts about jobs that failed, are held, or have waited for long; it is not watched for hanging
    plugins   run the inbox, and other parts that an app adds

Redis says in its reply to the heartbeat of a node whether the node is to do maintenance. The supervisor of that node
then starts or wakes the process, and lets it end a minute after its last work, unless the app has plugins. Each duty
runs in a thread of its own, and calls `heartbeat` after each piece of work. While all duties do so in time, the process
sends signs of life to the supervisor. When these fail to come, the supervisor kills the process and starts another one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.core.threads import StoppableThread, connections_closed
from coordinator.errors import StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

PAUSE = 5.0  # seconds after which a duty looks for work without being woken
SILENCE = 10.0  # seconds that one piece of work may take; after more, the duty counts as hanging


class NodePlugin(Protocol):
    """The type of a part of an app that runs in the maintenance process of each node. The process calls `start` once
    when it begins, and `stop` when it ends; neither may raise.
    """

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Duty(StoppableThread):
    """A thread that calls `look(heartbeat)` when it is woken, and otherwise every `pause` seconds.

    `look` does the work that is due, and calls `heartbeat()` after each piece of it. It returns True if there may be
    more to do: it is then called again at once. An exception is logged.
    """

    def __init__(self, name: str, look: Callable[[Callable[[], None]], object], pause: float = PAUSE) -> None:
        super().__init__(name, 2.0)
        self.name = name
        self._look = look
        self._pause = pause
        self._heartbeat_at = time.monotonic()
        self._woken = threading.Event()
        self._woken.set()  # the process was started because there is work

    def wake(self) -> None:
        """Make the duty look for work now."""
        self._woken.set()

    def stop(self) -> None:
        self.stopping.set()
        self.wake()
        super().stop()

    @property
    def hangs(self) -> bool:
        """True if the duty has called `heartbeat` for the last time more than SILENCE seconds ago."""
        return time.monotonic() - self._heartbeat_at > SILENCE

    def run(self) -> None:
        while not self.stopping.is_set():
            self._woken.wait(self._pause)
            self._woken.clear()
            self._heartbeat()
            try:
                with connections_closed():
                    if self._look(self._heartbeat):
                        self.wake()
            except (StoreUnavailable, StoreRefused) as error:
                logger.warning("duty %s failed and is repeated: %s", self.name, error)
            except Exception:
                logger.exception("duty %s failed and is repeated", self.name)

    def _heartbeat(self) -> None:
        self._heartbeat_at = time.monotonic()


def report_life(duties: Sequence[Duty], ended: Callable[[float], bool], notify: Callable[[], object]) -> None:
    """Call `notify()`, which sends a sign of life to the supervisor, each second while no duty hangs. Return when the
    supervisor has ended: `ended(seconds)` waits for that, and returns whether it has happened.
    """
    logged, over = False, False
    while not over:
        hanging = [duty.name for duty in duties if duty.hangs]
        if not hanging:
            notify()
        elif not logged:
            logger.error("duty %s hangs: one piece of work takes longer than %g s", ", ".join(hanging), SILENCE)
        logged = bool(hanging)
        over = ended(1.0)
