"""The clock's process, which a worker spawns beside itself: `python -m coordinator.warden.clock FD`.

The first line of its standard input is its charge, so that no secret stands on its command line. After each look it
writes a byte to FD, as a sign of life.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO, cast

from coordinator.diagnosis.server import log_server
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable
from coordinator.fleet import processes
from coordinator.fleet.nodes import About
from coordinator.store.client import Store
from coordinator.warden.clock.clock import Charge, Clock
from coordinator.warden.clock.wakes import WakeReader, wake_worker
from coordinator.warden.companion import Companion, LineReader, outlive_signals, sign_of_life

if TYPE_CHECKING:
    from coordinator.settings import Settings

logger = logging.getLogger(__name__)

_PATIENCE = 20.0  # seconds of silence after which the errands are killed
_FIRST = 180.0  # seconds until their first sign of life: they import the app


class WorkersSettings(SimpleNamespace):
    """The attributes of `Settings`, which the worker has checked: so this process loads no pydantic."""

    def source(self, name: str) -> str:
        return "its worker"


def serve(clock: Clock, source: TextIO, errands: Companion) -> None:
    """Step until the worker is gone, then sign off."""
    charge = clock.charge
    lines: queue.SimpleQueue[About] = queue.SimpleQueue()
    worker = LineReader(source, charge.worker, lines.put)
    worker.start()
    first_line = {"node": charge.node, "incarnation": charge.incarnation, "clock": processes.identity()}
    clock.sign()
    while not worker.ended(clock.settings.sweep):
        for _ in range(lines.qsize()):
            clock.receive(lines.get())
        clock.step()
        if clock.needs_errands:
            errands.look(lambda: first_line)
        else:
            errands.rest()
        if clock.errands_due:
            errands.send({"look": 1})
        clock.sign()
    sign_off(clock)
    errands.stop()
    clock.board.close()


def sign_off(clock: Clock) -> None:
    """Sign off, and ask for as long as a lease: where Redis is away, no lease ends before it is back. Jobs may have
    begun since the last beat, so an idle clock asks as long.
    """
    until = time.monotonic() + clock.settings.lock_ttl
    while True:
        try:
            return clock.leave()
        except CoordinatorError as error:
            logger.warning("clock of %s could not sign off: %s", clock.charge.node, error)
            if not isinstance(error, StoreUnavailable | StoreRefused) or time.monotonic() > until:
                return
        time.sleep(clock.settings.sweep)


def main() -> None:
    outlive_signals()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/clock] %(message)s")
    charge = Charge(**json.loads(sys.stdin.readline()))
    store = Store(cast("Settings", WorkersSettings(**charge.settings)))
    wake = partial(wake_worker, socket.socket(fileno=charge.wakes))
    clock = Clock(store, charge, partial(sign_of_life, int(sys.argv[1])), wake)
    command = ["-m", "coordinator.warden.errands", charge.app]
    errands = Companion("the errands", command, clock.board.folder / "errands", _PATIENCE, _FIRST)
    log_server(store, logger)
    WakeReader(clock, wake).start()
    serve(clock, sys.stdin, errands)


if __name__ == "__main__":
    main()
