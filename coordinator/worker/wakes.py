"""A worker's wake-ups: each starts a runner in one of its slots.

    a step ─► list `wakes:…` in Redis ─► the clock ─► a socket ─► the worker's loop ─► its pool

No broker has a part in it. The clock writes the name of a wake-up into the socket. The worker's loop, which watches the
socket beside its broker, gives it to Celery's own strategy, as a message that nobody sent. Where Celery has no such
loop (gevent, eventlet, some brokers), a thread reads the socket. A wake-up that is lost costs two seconds: the clock
writes again what no runner has answered.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from contextlib import suppress

from celery.worker.consumer import Consumer
from kombu.message import Message

from coordinator.celery_patches.last_slot import LastSlot, last_slot
from coordinator.runner.claim import TASK
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

_LONGEST = 255  # bytes of a name
_NO_LIMIT = 366 * 86400  # seconds: an app's global limits must not end a runner, which applies those of each job
_PAUSE = 0.01  # seconds between two looks of the thread for a free slot
_STOP = 0.5


class WakeUps:
    """The worker's end of the socket. `clocks_end`: the descriptor of the other one, for each of its clocks."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread: _Reader | None = None
        self._rests = False  # no slot is free: the loop does not watch the socket
        self.slots: LastSlot | None = None

    @property
    def clocks_end(self) -> int:
        return self._other.fileno()

    def start(self, c: Consumer) -> None:
        """Take wake-ups, once Celery consumes; again after each loss of its broker."""
        self.slots = last_slot(c)
        if c.hub is None:
            self._thread = _Reader(self, c)
            self._thread.start()
            return
        self._socket.setblocking(False)
        self._rests = True
        self._tick = lambda: self._watch(c)
        c.hub.on_tick.add(self._tick)

    def stop(self, c: Consumer) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        elif c.hub is not None and hasattr(self, "_tick"):
            c.hub.on_tick.discard(self._tick)
            c.hub.remove_reader(self._socket.fileno())

    def _watch(self, c: Consumer) -> None:
        """Watch the socket again as soon as a wake-up may take a slot."""
        if self._rests and (self.slots is None or self.slots.wait() < math.inf):
            self._rests = False
            c.hub.add_reader(self._socket.fileno(), self._read, c)

    def _read(self, c: Consumer) -> None:
        """Take a wake-up, unless the broker comes first. The loop calls again while there is one."""
        wait = self.slots.wait() if self.slots else 0.0
        if wait == 0:
            with suppress(BlockingIOError):
                self.take(c, self._socket.recv(_LONGEST))
        elif self.slots is None or not self.slots.is_unasked():
            self._rests = True
            c.hub.remove_reader(self._socket.fileno())
            if wait < math.inf:
                c.timer.call_after(wait, self._tick)

    def receive(self, seconds: float) -> bytes:
        """Wait for a wake-up; empty: none came."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            return self._socket.recv(_LONGEST)
        return b""

    def take(self, c: Consumer, wake: bytes) -> None:
        """Start a runner. Never raises: an exception here would end the worker, and the clock wakes again."""
        try:
            c.strategies[TASK](_message(wake.decode()), None, _settle, _settle, c.on_task_message)
        except Exception:
            logger.exception("cannot start a runner")


class _Reader(StoppableThread):
    """Reads the socket where Celery has no loop."""

    def __init__(self, wakes: WakeUps, consumer: Consumer) -> None:
        super().__init__("coordinator-wakes", 2 * _STOP)
        self._wakes, self._consumer = wakes, consumer

    def run(self) -> None:
        while not self.stopping.is_set():
            if wake := self._wakes.receive(_STOP):
                while (slots := self._wakes.slots) and slots.wait() > 0 and not self.stopping.is_set():
                    time.sleep(_PAUSE)
                self._wakes.take(self._consumer, wake)


def _message(wake: str) -> Message:
    headers = {
        "lang": "py",
        "task": TASK,
        "id": wake,
        "retries": 0,
        "timelimit": [_NO_LIMIT, _NO_LIMIT],
        "ignore_result": True,
    }
    return Message(
        "[[], {}, {}]", wake, headers=headers, properties={}, delivery_info={"exchange": "", "routing_key": ""},
        content_type="application/json", content_encoding="utf-8", accept={"application/json"},
    )  # fmt: skip


def _settle(*_: object) -> None:
    """Acknowledge nothing: nobody sent the message."""
