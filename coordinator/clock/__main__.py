"""The clock's process, which a worker spawns beside itself: `python -m coordinator.clock FD`.

Its charge comes as the first line of its standard input, and no secret stands on its command line. To FD it writes a
byte each time that its node becomes registered (1) or is no longer (0).
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

from coordinator.clock.clock import Charge, Clock
from coordinator.clock.errands_process import ErrandsProcess
from coordinator.diagnosis.status import warnings
from coordinator.errors import SettingsError, StoreUnavailable
from coordinator.fleet.nodes import About
from coordinator.settings import Settings
from coordinator.store.client import Store

logger = logging.getLogger(__name__)


class Ear(threading.Thread):
    """Reads the worker's lines; `ended` once the worker is gone."""

    def __init__(self, source: TextIO) -> None:
        super().__init__(name="clock-ear", daemon=True)
        self._source = source
        self._lines: queue.SimpleQueue[About] = queue.SimpleQueue()
        self.ended = threading.Event()

    def heard(self) -> Iterator[About]:
        with suppress(queue.Empty):
            while True:
                yield self._lines.get_nowait()

    def run(self) -> None:
        try:
            for line in self._source:
                self._hear(line)
        except (OSError, ValueError):
            logger.exception("the clock cannot hear its worker")
        finally:
            self.ended.set()

    def _hear(self, line: str) -> None:
        """A line that cannot be read says nothing; its worker lives."""
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        if isinstance(told, dict):
            self._lines.put(told)
        else:
            logger.error("the clock passes over a line of its worker: %.100r", line)


def serve(clock: Clock, source: TextIO, voice: int, errands: ErrandsProcess) -> None:
    """Step until the worker is gone."""
    ear, said = Ear(source), False
    ear.start()
    errands.look()
    while not ear.ended.wait(clock.settings.sweep):
        for line in ear.heard():
            clock.hear(line)
        clock.step()
        errands.look()
        if clock.errands_due:
            errands.tell()
        if clock.registered != said:
            said = clock.registered
            with suppress(OSError):  # the worker is gone, which the ear hears
                os.write(voice, b"1" if said else b"0")
    try:
        clock.leave()
    except StoreUnavailable as error:
        logger.warning("clock of %s could not sign off: %s", clock.charge.node, error)
    errands.stop()
    clock.board.close()


def warn(store: Store) -> None:
    """Log once why this Redis may lose jobs. A Redis that is away, or does not tell, keeps no clock from its work."""
    try:
        found = warnings(store)
    except Exception as error:
        level = logging.ERROR if isinstance(error, SettingsError) else logging.INFO
        logger.log(level, "cannot ask Redis how it keeps its data: %s", error)
        return
    for warning in found:
        logger.warning("%s", warning)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # SIG_IGN would go on to the errands and to what they start
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/clock] %(message)s")
    charge = Charge(**json.loads(sys.stdin.readline()))
    store = Store(Settings.model_validate(charge.settings))
    clock = Clock(store, charge)
    told = {"node": charge.node, "incarnation": charge.incarnation}
    errands = ErrandsProcess(charge.app, told, clock.board.folder)
    store.ringer = errands.ring
    warn(store)
    serve(clock, sys.stdin, int(sys.argv[1]), errands)


if __name__ == "__main__":
    main()
