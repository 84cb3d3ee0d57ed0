"""Passes wake-ups on: pops each from the node's list in Redis, and writes it into the socket of the worker."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from coordinator.core.store.connections import Pop
from coordinator.core.supervisor.supervisor import Supervisor
from coordinator.errors import CoordinatorError

logger = logging.getLogger(__name__)

_PATIENCE = 1.0  # seconds that a blocking pop waits; when Redis fails over, a wake-up is late by as much
_PAUSE = 0.2  # seconds until a failed pop is tried again


class WakeReader(threading.Thread):
    """A thread that waits for wake-ups of the node with a blocking pop, on a separate connection to Redis, and calls
    `wake` with each. If the thread hangs or fails, the supervisor's heartbeat repeats all that started no runner.
    """

    def __init__(self, supervisor: Supervisor, wake: Callable[[bytes], object]) -> None:
        super().__init__(name="wake-reader", daemon=True)
        self._supervisor, self._wake = supervisor, wake
        self._is_away = False  # True: Redis does not answer, and the log says so

    def run(self) -> None:
        store, config = self._supervisor.store, self._supervisor.config
        with store.pop(store.key("wakes", config.incarnation, config.node)) as pop:
            while True:
                self._pass_on(pop)

    def _pass_on(self, pop: Pop) -> None:
        try:
            if wake := pop(_PATIENCE):
                self._receive(wake)
            self._is_away = False
        except CoordinatorError as error:
            if not self._is_away:
                logger.info("wake-ups of %s come later, with a heartbeat: %s", self._supervisor.config.node, error)
            self._is_away = True
            time.sleep(_PAUSE)
        except Exception:
            logger.exception("cannot pass on the wake-ups of %s", self._supervisor.config.node)
            time.sleep(_PATIENCE)

    def _receive(self, wake: bytes) -> None:
        """Pass a wake-up on: at once, or after its delay, `<name>+<ms>`. By a timer of this process, since Redis ends a
        blocking pop up to 0.1 s late.
        """
        name, _, delay = wake.partition(b"+")
        if delay.isdigit():
            timer = threading.Timer(int(delay) / 1000, self._wake, (name,))
            timer.daemon = True
            timer.start()
        else:
            self._wake(name)


def wake_worker(worker: socket.socket, wake: bytes) -> None:
    """Write the name of a wake-up into the socket of the worker. If the socket is full or closed, drop the wake-up: a
    later heartbeat repeats it.
    """
    with suppress(OSError):
        worker.send(wake, socket.MSG_DONTWAIT)
