"""The errands of an app: all work that may block or fail, in a process of a node that imports the app.

    results   sends results and links that no runner sent
    parked    looks at parked jobs, whether their sub-results have ended
    troubles  tells of jobs that failed, are held, or wait for long
    plugins   run the inbox, and whatever else an app adds

The clock learns from its beat that its node is to do errands, and starts or wakes them; a minute after the last one it
lets them end, unless the app has plugins. Each duty has a thread, and calls `get_on` after each piece of work. While all of them do, the process sends
the clock signs of life; else the clock kills it and starts another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.errors import StoreRefused, StoreUnavailable
from coordinator.threads import StoppableThread, connections_closed

logger = logging.getLogger(__name__)

PAUSE = 5.0  # seconds until a duty looks without being woken
SILENCE = 10.0  # seconds that one piece of work may take


class WardenPlugin(Protocol):
    """A part that runs in the errands' process, beside the worker. The errands start it once and stop it at the end;
    it never raises.
    """

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Duty(StoppableThread):
    """Calls `look(get_on)` when woken and each `pause` seconds; `look` calls `get_on` after each piece of work.

    Where `look` returns True, there may be more to do, and it is called again at once.
    """

    def __init__(self, name: str, look: Callable[[Callable[[], None]], object], pause: float = PAUSE) -> None:
        super().__init__(name, 2.0)
        self.name = name
        self._look = look
        self._pause = pause
        self._got_on = time.monotonic()
        self._woken = threading.Event()
        self._woken.set()  # somebody has started it since there is work

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self.stopping.set()
        self.wake()
        super().stop()

    @property
    def hangs(self) -> bool:
        return time.monotonic() - self._got_on > SILENCE

    def run(self) -> None:
        while not self.stopping.is_set():
            self._woken.wait(self._pause)
            self._woken.clear()
            self._get_on()
            try:
                with connections_closed():
                    if self._look(self._get_on):
                        self.wake()
            except (StoreUnavailable, StoreRefused) as error:
                logger.warning("%s: %s", self.name, error)
            except Exception:
                logger.exception("%s", self.name)

    def _get_on(self) -> None:
        self._got_on = time.monotonic()


def report_life(duties: Sequence[Duty], ended: Callable[[float], bool], notify: Callable[[], object]) -> None:
    """Send the clock a sign of life each second while no duty hangs; return once `ended(seconds)` says it is gone."""
    logged, over = False, False
    while not over:
        hanging = [duty.name for duty in duties if duty.hangs]
        if not hanging:
            notify()
        elif not logged:
            logger.error("%s: one piece of work takes longer than %g s", ", ".join(hanging), SILENCE)
        logged = bool(hanging)
        over = ended(1.0)
