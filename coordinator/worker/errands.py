"""The errands of a node: all that it does for others' jobs and that may wait, hang or fail.

    results   results and links that nobody sent
    parked    parked jobs whose sub-results are to be looked at
    bells     doorbells that the clock has to ring
    plugins   added by others (the inbox, the copies of documents, unacked messages)

They have a process of their own, which imports the app. The clock, whose beat hears of it, says when results are owed
or parked jobs are to be looked at; so errands with nothing to do ask for nothing. Each duty has a thread of its own,
and says after each piece of work that it gets on. The process tells the clock so as long as all do; else the clock
kills it and starts another.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from coordinator.errors import StoreRefused, StoreUnavailable
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

PAUSE = 5.0  # seconds between two looks that nobody asked for
SILENCE = 10.0  # seconds for which a duty may be at one piece of work


class WardenPlugin(Protocol):
    """Lives beside the worker, in its errands: they start it once and stop it at the end. It never raises."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Duty(StoppableThread):
    """Calls `look(get_on)` when woken, and each `pause` seconds; `look` calls `get_on` after each piece of work."""

    def __init__(self, name: str, look: Callable[[Callable[[], None]], object], pause: float = PAUSE) -> None:
        super().__init__(name, 2.0)
        self.name = name
        self._look = look
        self._pause = pause
        self._got_on = time.monotonic()
        self._wanted = threading.Event()

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self.stopping.set()
        self.wake()
        super().stop()

    @property
    def hangs(self) -> bool:
        return time.monotonic() - self._got_on > SILENCE

    def run(self) -> None:
        while not self.stopping.is_set():
            self._wanted.wait(self._pause)
            self._wanted.clear()
            self._get_on()
            try:
                self._look(self._get_on)
            except (StoreUnavailable, StoreRefused) as error:
                logger.warning("%s: %s", self.name, error)
            except Exception:
                logger.exception("%s", self.name)

    def _get_on(self) -> None:
        self._got_on = time.monotonic()


def attend(duties: Sequence[Duty], ended: Callable[[float], bool], voice: int) -> None:
    """Tell the clock at once, and each second, that all duties get on, until `ended(seconds)` says that it is gone."""
    told, over = False, False
    while not over:
        hanging = [duty.name for duty in duties if duty.hangs]
        if not hanging:
            with suppress(OSError):  # the clock is gone, which `ended` hears
                os.write(voice, b".")
        elif not told:
            logger.error("%s: no end of it for %g s", ", ".join(hanging), SILENCE)
        told = bool(hanging)
        over = ended(1.0)
