"""The way of a wake-up through the clock: from the node's list in Redis into the socket of its worker."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from coordinator.errors import CoordinatorError
from coordinator.store.connections import Pop
from coordinator.warden.clock.clock import Clock

logger = logging.getLogger(__name__)

_PATIENCE = 1.0  # seconds for which Redis waits: so long a wake-up takes after a failover under the wait
_PAUSE = 0.2


class WakeReader(threading.Thread):
    """Waits for the wake-ups of the clock's node, on a connection of its own.

    Where it hangs or fails, the beat finds the wake-ups that no runner answers.
    """

    def __init__(self, clock: Clock, wake: Callable[[bytes], object]) -> None:
        super().__init__(name="wake-reader", daemon=True)
        self._clock, self._wake = clock, wake
        self._is_away = False  # Redis, which is logged once

    def run(self) -> None:
        store, charge = self._clock.store, self._clock.charge
        with store.pop(store.key("wakes", charge.incarnation, charge.node)) as pop:
            while True:
                self._pass_on(pop)

    def _pass_on(self, pop: Pop) -> None:
        try:
            if wake := pop(_PATIENCE):
                self._wake(wake)
            self._is_away = False
        except CoordinatorError as error:
            if not self._is_away:
                logger.info("wake-ups of %s come later: %s", self._clock.charge.node, error)
            self._is_away = True
            time.sleep(_PAUSE)
        except Exception:
            logger.exception("wake-ups of %s", self._clock.charge.node)
            time.sleep(_PATIENCE)


def wake_worker(worker: socket.socket, wake: bytes) -> None:
    """Write a wake-up, unless the worker does not read: then the beat tries again."""
    with suppress(OSError):
        worker.send(wake, socket.MSG_DONTWAIT)
